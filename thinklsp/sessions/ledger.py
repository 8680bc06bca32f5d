"""The ledger of edits: what was about to be sent to the editor, and what came of it.

An intent is committed before the edit leaves, its outcome after the editor's answer. An intent without an outcome,
whose process is gone, is unknown: it is compared with the file and told, and never sent again. The edit of an undo
stands under the turn that it takes back and counts as undone from the start, so that no undo finds it.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from sqlite3 import Connection
from typing import Any, Literal

from thinklsp.sessions.codec import as_time, number, storable, to_bytes, to_text

Outcome = Literal["applied", "refused", "unknown"]
EditKind = Literal["change", "create", "rename", "delete"]
KEPT_DAYS = 30
_COLUMNS = (
    "edit, session, workspace, turn, uri, path, new_uri, version, before, after, before_sha256, after_sha256, outcome, "
    "undone, made"
)


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """One file of an edit as it is sent: `before` is the text that the editor has (None: no such file), `after` what
    it will have (None: the file is deleted). `version` is that of the open document, None for one that is not open."""

    uri: str
    path: str
    before: str | None
    after: str | None
    version: int | None = None
    new_uri: str | None = None

    @property
    def kind(self) -> EditKind:
        if self.before is None:
            return "create"
        if self.after is None:
            return "delete"
        return "change" if self.new_uri is None else "rename"


@dataclass(frozen=True, slots=True)
class Intent:
    """An edit that is in the ledger and may be sent now."""

    id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One file of one edit. `outcome` None: not known yet. `undone` is true for every edit of an undo, too."""

    write: PlannedWrite
    before_sha256: str | None
    after_sha256: str | None
    outcome: Outcome | None
    undone: bool
    made: datetime

    def state_of(self, text: str | None) -> Literal["as before", "as after", "other"]:
        """How the file stands, given its text now (None: there is no such file)."""
        now = sha256(text)
        if now == self.after_sha256:
            return "as after"
        return "as before" if now == self.before_sha256 else "other"


@dataclass(frozen=True, slots=True)
class LedgerEdit:
    """One edit with all its files, in their order."""

    intent: Intent
    workspace: str
    turn_id: str
    entries: tuple[LedgerEntry, ...]

    @property
    def session_id(self) -> str:
        return self.intent.session_id


@dataclass(frozen=True, slots=True)
class WrittenTurn:
    """What a turn wrote, for its undo: edits in the order in which they were sent, with the applied files only."""

    turn_id: str
    session_id: str
    edits: tuple[LedgerEdit, ...]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a turn wrote, under its new name. `title` is that of the session."""

    turn_id: str
    session_id: str
    uri: str
    title: str
    made: datetime


def sha256(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(to_bytes(text)).hexdigest()


def write_intent(
    connection: Connection,
    session_id: str,
    workspace: str,
    turn_id: str,
    writes: Sequence[PlannedWrite],
    *,
    writer: str,
    undo: bool,
) -> Intent:
    """Store an edit that may be sent then."""
    intent = Intent(secrets.token_hex(16), session_id)
    names = (session_id, storable(workspace), turn_id, writer)
    now = time.time_ns()
    for position, write in enumerate(writes):
        connection.execute(
            "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",
            (
                intent.id,
                position,
                *names,
                storable(write.uri),
                storable(write.path),
                None if write.new_uri is None else storable(write.new_uri),
                write.kind,
                write.version,
                None if write.before is None else to_bytes(write.before),
                None if write.after is None else to_bytes(write.after),
                sha256(write.before),
                sha256(write.after),
                undo,
                now,
            ),
        )
    return intent


def settle(
    connection: Connection,
    _session_id: str,
    edit_id: str,
    outcomes: Mapping[str, Outcome],
    parts: Sequence[PlannedWrite],
) -> None:
    """Store outcomes by URI. A file that is not named there stays without one. `parts` replace what was planned for
    files of which only a part was written.
    """
    for uri, outcome in outcomes.items():
        connection.execute(
            "UPDATE ledger SET outcome = ? WHERE edit = ? AND uri = ?", (outcome, edit_id, storable(uri))
        )
    for part in parts:
        after = None if part.after is None else to_bytes(part.after)
        new_uri = None if part.new_uri is None else storable(part.new_uri)
        connection.execute(
            "UPDATE ledger SET kind = ?, new_uri = ?, after = ?, after_sha256 = ? WHERE edit = ? AND uri = ?",
            (part.kind, new_uri, after, sha256(part.after), edit_id, storable(part.uri)),
        )


def list_unsettled(connection: Connection, workspace: str, writer: str) -> tuple[LedgerEdit, ...]:
    """Return edits without an outcome that were not written by `writer`."""
    return _edits(_rows(connection, "workspace = ? AND outcome IS NULL AND writer != ?", (storable(workspace), writer)))


def find_written(
    connection: Connection, workspace: str, turn_id: str | None, session_id: str | None
) -> tuple[WrittenTurn, ...]:
    """Return a turn with the files that it wrote and that were not undone, if there are any. Without an id, return
    the newest such turn: of the session, or of all."""
    where = "workspace = ? AND outcome = 'applied' AND undone = 0"
    values: tuple[str, ...] = (storable(workspace),)
    if session_id is not None:
        where, values = f"{where} AND session = ?", (*values, session_id)
    if turn_id is None:
        row = connection.execute(
            f"SELECT turn FROM ledger WHERE {where} ORDER BY made DESC LIMIT 1",  # noqa: S608 - constants
            values,
        ).fetchone()
        if row is None:
            return ()
        turn_id = str(row[0])
    edits = _edits(_rows(connection, f"{where} AND turn = ?", (*values, turn_id)))
    return (WrittenTurn(turn_id, edits[0].session_id, edits),) if edits else ()


def mark_undone(
    connection: Connection, _session_id: str, edits: Sequence[LedgerEdit], uris: Iterable[str] | None
) -> None:
    """Mark all files of a turn's edits as undone, or the named ones."""
    for edit in edits:
        for entry in edit.entries:
            if uris is None or entry.write.uri in uris:
                connection.execute(
                    "UPDATE ledger SET undone = 1 WHERE edit = ? AND uri = ?",
                    (edit.intent.id, storable(entry.write.uri)),
                )


def list_written_files(connection: Connection, workspace: str, since: datetime) -> Iterator[WrittenFile]:
    """What turns have written and nobody has undone, oldest first, without the texts."""
    rows = connection.execute(
        "SELECT ledger.turn, ledger.session, coalesce(ledger.new_uri, ledger.uri), coalesce(session.title, ''), "
        "ledger.made "
        "FROM ledger LEFT JOIN session ON session.id = ledger.session "
        "WHERE ledger.workspace = ? AND ledger.outcome = 'applied' AND ledger.undone = 0 AND ledger.made >= ? "
        "ORDER BY ledger.made, ledger.position",
        (storable(workspace), int(since.timestamp() * 10**9)),
    )
    return (
        WrittenFile(str(turn), str(session), str(uri), str(title), as_time(number(made)))
        for turn, session, uri, title, made in rows
    )


def forget_old(connection: Connection) -> None:
    """Texts of files are not kept for ever."""
    limit = time.time_ns() - KEPT_DAYS * 86_400 * 10**9
    connection.execute("DELETE FROM ledger WHERE made < ? AND outcome IS NOT NULL", (limit,))


def _rows(connection: Connection, where: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
    query = f"SELECT {_COLUMNS} FROM ledger WHERE {where} ORDER BY made, edit, position"  # noqa: S608 - constants
    return connection.execute(query, values).fetchall()


def _edits(rows: Iterable[tuple[Any, ...]]) -> tuple[LedgerEdit, ...]:
    gathered: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        gathered.setdefault(str(row[0]), []).append(row)
    edits = []
    for edit, entries in gathered.items():
        _, session_id, workspace, turn, *_ = entries[0]
        edits.append(LedgerEdit(Intent(edit, str(session_id)), str(workspace), str(turn), tuple(map(_entry, entries))))
    return tuple(edits)


def _entry(row: tuple[Any, ...]) -> LedgerEntry:
    uri, path, new_uri, version, before, after, before_sha, after_sha, outcome, undone, made = row[4:]
    write = PlannedWrite(str(uri), str(path), _text(before), _text(after), version, new_uri)
    return LedgerEntry(write, before_sha, after_sha, outcome, bool(undone), as_time(number(made)))


def _text(data: object) -> str | None:
    """A damaged text is shown as far as it goes; its digest tells that it is not what was written."""
    if not isinstance(data, bytes):
        return None
    try:
        return to_text(data)
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
