"""The transports (standard input and output, TCP, WebSocket) and the lifetime of a connection."""
