"""Pausing and resuming analyses, in batches too, and the gates at which a human decides."""
