"""The simulated Chat Completions API, with the behavior of several compatible servers.

The entry point is `service`.
"""
