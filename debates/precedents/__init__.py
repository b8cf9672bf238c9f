"""Precedents: earlier debates, resolved by the time that a debate was opened, which are comparable with it."""
