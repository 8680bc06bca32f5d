"""Data and pure functions: messages, stream events, edits, turn events, errors. Standard library only, no I/O."""
