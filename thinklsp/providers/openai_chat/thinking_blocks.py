"""LiteLLM's `thinking_blocks`: Claude's signed and redacted thinking in a stream of chat completions.

The pieces carry no index. A signature ends a block of thinking; redacted thinking comes whole.
"""

from __future__ import annotations

from typing import Any

from thinklsp.core.pieces import Pieces


class ThinkingBlocks:
    """Lives with one stream."""

    def __init__(self) -> None:
        self._finished: list[dict[str, Any]] = []
        self._pieces = Pieces()

    def take(self, entries: object) -> str:
        """Take the entries of one delta; return the readable text in them."""
        found = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        return "".join(map(self._take, found))

    def whole(self) -> list[dict[str, Any]]:
        """Return the blocks that can go back. Thinking without a signature would be refused."""
        return self._finished

    def _take(self, entry: dict[str, Any]) -> str:
        if entry.get("type") == "redacted_thinking":
            self._finished.append(entry)
            return ""
        text, signature = entry.get("thinking"), entry.get("signature")
        text = text if isinstance(text, str) else ""
        self._pieces.append(text)
        if isinstance(signature, str) and signature:
            self._finished.append({**entry, "type": "thinking", "thinking": str(self._pieces)})
            self._pieces = Pieces()
        return text
