"""Services as the gateway authorises them for an actor; :class:`imem.memory.Memory` offers them."""
