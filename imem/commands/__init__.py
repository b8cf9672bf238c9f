"""The commands of ``imem``, one module per concern; each has a Typer ``app`` that :mod:`imem.cli` takes in."""

is_command = False
"""Whether this process is the command: then its own words speak, and logs say nothing below an error."""
