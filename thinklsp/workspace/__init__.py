"""The workspace of a turn: its files, open documents and pending edits.

This package does not depend on tools or LSP.
"""
