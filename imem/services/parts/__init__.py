"""The parts of :class:`imem.memory.Memory` that it inherits, by subject."""
