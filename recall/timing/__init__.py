"""Whether answers come in time: assembly, lateness, and the watch over both."""
