"""The edits that can be applied or undone in a document. This module is small, because it loads before the engine."""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol.types import WorkspaceEdit

from thinklsp.core.text_safety import to_one_line
from thinklsp.sessions.session import truncate_title


@dataclass(frozen=True, slots=True)
class OfferedEdit:
    """A pending edit for a document. Clients that accept edits in code actions can apply `edit` directly."""

    turn_id: str
    title: str
    edit: WorkspaceEdit | None


@dataclass(frozen=True, slots=True)
class UndoableTurn:
    """A turn that wrote to a document and can be undone."""

    turn_id: str
    title: str
    session_id: str


def format_undo(title: str) -> str:
    """Return the words for undoing a turn with this title, on one line."""
    return f"undo “{truncate_title(to_one_line(title))}”"
