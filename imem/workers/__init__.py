"""The product's own processes: one module per role, each with a function ``run(settings)``."""
