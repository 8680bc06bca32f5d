"""Processes that can be killed, for computation that is native or grows faster than its input."""
