"""Short texts of an MCP server as part of a message to the user."""

from __future__ import annotations


def make_printable(text: str, max_length: int) -> str:
    """Return the beginning of a text with its control and invisible characters replaced."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:max_length])
    return f"{shown}…" if len(text) > max_length else shown
