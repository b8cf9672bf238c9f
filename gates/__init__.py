"""Human gates that write to memory: what a person is shown at them, and what an answer does."""
