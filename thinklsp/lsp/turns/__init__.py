"""The running turns of a connection, with their start, progress, cancellation and result."""
