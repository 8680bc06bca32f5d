"""What a hover says of text that a turn wrote: why, by which model, when, tested or not, and how to take it back.

In a code fence where the editor wants Markdown: what models, files and users have named is nothing but text there.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any, Literal

from thinklsp.lsp.edits.written_text import Origin
from thinklsp.tools.shown import visible

Format = Literal["markdown", "plaintext"]

_WIDTH = 80
_LONGEST_WHY, _MOST_SENTENCES = 300, 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_TICKS = re.compile("`{3,}")


def hover(origin: Origin, form: Format) -> dict[str, Any]:
    text = told(origin)
    if form == "markdown":
        fence = max((run + "`" for run in _TICKS.findall(text)), key=len, default="```")
        lines = "\n".join(part for line in text.split("\n") for part in textwrap.wrap(line, _WIDTH) or [""])
        text = f"{fence}text\n{lines}\n{fence}"
    return {"contents": {"kind": form, "value": text}}


def told(origin: Origin) -> str:
    """Lines of plain text; nothing invisible in them."""
    title = _one_line(origin.turn.title)
    made = ", ".join(filter(None, (_one_line(origin.model), f"{origin.at:%Y-%m-%d %H:%M}")))
    back = f"To undo: the action “thinklsp: undo: {title}”, or thinklsp.undo with turn {origin.turn.turn_id}."
    lines = (f"Written by thinklsp: {title}", first_sentences(origin.why), made, _one_line(origin.verified), back)
    return "\n".join(filter(None, lines))


def first_sentences(text: str) -> str:
    """The beginning of what a turn said, on one line."""
    said = " ".join(_SENTENCE_END.split(_one_line(text))[:_MOST_SENTENCES])
    return said if len(said) <= _LONGEST_WHY else said[: _LONGEST_WHY - 1].rstrip() + "…"


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())
