"""Bytes to server-sent events, and the only door to HTTP. Knows no provider."""
