"""Whom to trust: how outcomes settle findings, and the track records that follow from it."""
