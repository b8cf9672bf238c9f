"""The commands of ``imem``, one module per concern; each has a Typer ``app`` that :mod:`imem.cli` takes in."""

is_command = False
"""Whether this process is the ``imem`` command: then logs below an error are suppressed, since it prints results."""
