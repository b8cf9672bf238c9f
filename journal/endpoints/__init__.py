"""External servers: their URLs, and calls to them."""
