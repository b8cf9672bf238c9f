"""Evidence of patterns: archives that open without the product, their index, and how long files are kept."""
