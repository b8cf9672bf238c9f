"""Patterns: tested on data that did not shape them, approved by a person, and watched while they are active."""
