"""The protocol layer. It checks messages, runs handlers and sends exactly one reply to each request."""
