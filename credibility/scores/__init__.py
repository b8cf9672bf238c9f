"""What a score is: contexts, cells of evidence, and the formulas over them."""
