"""What the edit ledger records: edits with their files and outcomes, and the turns that made them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from thinklsp.sessions.codec import to_bytes

WriteOutcome = Literal["applied", "refused", "unknown"]
EditKind = Literal["change", "create", "rename", "delete"]


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """The change to one file in an edit.

    `before` is the text in the editor, or None if the file does not exist yet. `after` is the new text, or None if the
    edit deletes the file. `version` is the version of an open document.
    """

    uri: str
    path: str
    before: str | None
    after: str | None
    version: int | None = None
    new_uri: str | None = None

    @property
    def kind(self) -> EditKind:
        """The kind of file change: change, create, rename or delete."""
        if self.before is None:
            return "create"
        if self.after is None:
            return "delete"
        return "change" if self.new_uri is None else "rename"


@dataclass(frozen=True, slots=True)
class EditIntent:
    """An edit that is stored in the ledger and can now be sent."""

    id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The change to one file in the ledger. `outcome` is None if the outcome is unknown.

    `undone` is always true for the files of an undo.
    """

    write: PlannedWrite
    before_sha256: str | None
    after_sha256: str | None
    outcome: WriteOutcome | None
    undone: bool
    created: datetime

    @property
    def is_damaged(self) -> bool:
        """True if a text is not the one that was stored."""
        texts = ((self.write.before, self.before_sha256), (self.write.after, self.after_sha256))
        return any(digest is not None and compute_sha256(text) != digest for text, digest in texts)

    def compare_text(self, text: str | None) -> Literal["as before", "as after", "other"]:
        """Compare the file's current text with the texts before and after the edit. None stands for a missing file."""
        now = compute_sha256(text)
        if now == self.after_sha256:
            return "as after"
        return "as before" if now == self.before_sha256 else "other"


@dataclass(frozen=True, slots=True)
class LedgerEdit:
    """An edit in the ledger with all of its files, in their original order."""

    intent: EditIntent
    workspace: str
    turn_id: str
    entries: tuple[LedgerEntry, ...]

    @property
    def session_id(self) -> str:
        return self.intent.session_id


@dataclass(frozen=True, slots=True)
class WrittenTurn:
    """The edits of a turn that an undo must revert, in the order in which they were sent.

    Only applied files are included.
    """

    turn_id: str
    session_id: str
    edits: tuple[LedgerEdit, ...]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a turn has written. `uri` is its current name, and `title` is the session's title.

    `is_undone` is true if the turn's changes to the file were undone.
    """

    turn_id: str
    session_id: str
    uri: str
    title: str
    created: datetime
    is_undone: bool = False


def compute_sha256(text: str | None) -> str | None:
    """Return the SHA-256 digest of `text`, or None if `text` is None."""
    return None if text is None else hash_text(text)


def hash_text(text: str) -> str:
    """Return the SHA-256 digest of a text."""
    return hashlib.sha256(to_bytes(text)).hexdigest()
