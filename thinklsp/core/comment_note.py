"""The note to the model that an instruction comes from a comment. The user never sees the note."""

from __future__ import annotations

_NOTE = (
    "\n\n(This instruction comes from a comment in the document. Remove the comment, including the mark AI!, as part "
    "of the change.)"
)


def add_comment_note(instruction: str) -> str:
    return instruction + _NOTE


def remove_comment_note(instruction: str) -> str:
    """Return the user's own words of an instruction."""
    return instruction.removesuffix(_NOTE)
