"""``python -m imem``."""

from imem.cli import main

main()
