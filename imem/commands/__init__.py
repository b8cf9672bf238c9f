"""The commands of ``imem``, one module per concern; each has a Typer ``app`` that :mod:`imem.cli` takes in."""
