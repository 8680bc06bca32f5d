"""Edits made by turns, including merging, review, sending, verification, the edit ledger, attribution and undo."""
