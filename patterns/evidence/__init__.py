"""What a test of a pattern says, as designed and soundly: pure functions of cases and pairs."""
