"""The open documents with their text, and the code and diagnostics at a position."""
