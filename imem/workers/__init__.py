"""The product's own processes: one module a role, each with one function ``run(settings)``."""
