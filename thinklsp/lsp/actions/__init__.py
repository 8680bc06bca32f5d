"""Code actions: which are offered where, and which turn a command asks for."""
