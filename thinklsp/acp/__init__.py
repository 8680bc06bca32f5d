"""The Agent Client Protocol (ACP), version 1, on standard input and output. The only package that imports ACP types."""
