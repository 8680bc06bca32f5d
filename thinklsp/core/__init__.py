"""Data types and pure functions for messages, stream events, edits, turn events and errors.

This package uses only the standard library and performs no I/O.
"""
