"""Reflection notes: what the closed trades of a deployment say, beside what chance would say."""
