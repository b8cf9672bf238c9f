"""The tests of a pattern, as designed and sound: pure functions of cases and pairs."""
