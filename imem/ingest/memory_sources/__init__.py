"""Exports of other memories, one module each: what becomes of an entry."""
