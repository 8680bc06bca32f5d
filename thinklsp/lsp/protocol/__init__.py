"""The protocol layer. It decodes frames, checks messages, runs handlers and sends exactly one reply to each request."""
