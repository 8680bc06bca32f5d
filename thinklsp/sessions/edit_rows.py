"""Database rows for the edit ledger, which records every edit sent to the editor and its outcome.

An edit is stored before it is sent, and its outcome is stored after the editor has responded. If the process exits in
between, the outcome is unknown. The edit is then compared with the file, but never sent again. An undo is recorded as
an edit of the same turn and cannot be undone itself.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from thinklsp.sessions.codec import parse_time, read_number, replace_surrogates, to_bytes, to_text
from thinklsp.sessions.ledger import (
    EditIntent,
    LedgerEdit,
    LedgerEntry,
    PlannedWrite,
    WriteOutcome,
    WrittenFile,
    WrittenTurn,
    hash_text,
)
from thinklsp.sessions.row_connection import RowConnection
from thinklsp.sessions.session_cipher import SessionCipher, StoreCipher, decrypt_title

RETENTION_DAYS = 30
_COLUMNS = (
    "edit, session, workspace, turn, uri, path, new_uri, version, before, after, before_sha256, after_sha256, outcome, "
    "undone, made"
)


def write_intent(
    connection: RowConnection,
    session_id: str,
    workspace: str,
    turn_id: str,
    writes: Sequence[PlannedWrite],
    cipher: StoreCipher,
    *,
    writer: str,
    is_undo: bool,
) -> EditIntent:
    """Store an edit. The server may send the edit only after the transaction has been committed."""
    intent = EditIntent(secrets.token_hex(16), session_id)
    names = (session_id, replace_surrogates(workspace), turn_id, writer)
    now = time.time_ns()
    session_cipher = cipher.ensure(connection, session_id)
    for position, write in enumerate(writes):
        connection.execute(
            "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",
            (
                intent.id,
                position,
                *names,
                replace_surrogates(write.uri),
                replace_surrogates(write.path),
                None if write.new_uri is None else replace_surrogates(write.new_uri),
                write.kind,
                write.version,
                *_encode_texts(session_cipher, intent.id, write),
                is_undo,
                now,
            ),
        )
    return intent


def store_outcomes(
    connection: RowConnection,
    session_id: str,
    edit_id: str,
    outcomes: Mapping[str, WriteOutcome],
    parts: Sequence[PlannedWrite],
    cipher: StoreCipher,
) -> None:
    """Store the outcomes of an edit by URI. Files without an outcome remain unknown.

    `parts` replaces the planned changes of files that the editor changed differently, for example only in part.
    """
    for uri, outcome in outcomes.items():
        connection.execute(
            "UPDATE ledger SET outcome = ? WHERE edit = ? AND uri = ?", (outcome, edit_id, replace_surrogates(uri))
        )
    for part in parts:
        texts = _encode_texts(cipher.find(connection, session_id), edit_id, part)
        new_uri = None if part.new_uri is None else replace_surrogates(part.new_uri)
        connection.execute(
            "UPDATE ledger SET kind = ?, new_uri = ?, before = ?, after = ?, before_sha256 = ?, after_sha256 = ? "
            "WHERE edit = ? AND uri = ?",
            (part.kind, new_uri, *texts, edit_id, replace_surrogates(part.uri)),
        )


def list_unsettled(
    connection: RowConnection, workspace: str, writer: str, cipher: StoreCipher
) -> tuple[LedgerEdit, ...]:
    """Return the edits of other processes whose outcome is unknown."""
    where = "workspace = ? AND outcome IS NULL AND writer != ?"
    rows = _select_rows(connection, where, (replace_surrogates(workspace), writer))
    ciphers = cipher.find_all(connection, {str(row[1]) for row in rows})
    # Without the key of its session, an edit cannot be compared with the file.
    return _build_edits(connection, [row for row in rows if ciphers[str(row[1])].can_decrypt], cipher)


def find_written_turn(
    connection: RowConnection, workspace: str, turn_id: str | None, session_id: str | None, cipher: StoreCipher
) -> tuple[WrittenTurn, ...]:
    """Return the edits of a turn that can be undone, or an empty tuple.

    If `turn_id` is None, the newest turn of the session or of all sessions is used.
    """
    where = "workspace = ? AND outcome = 'applied' AND undone = 0"
    values: tuple[str, ...] = (replace_surrogates(workspace),)
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
    edits = _build_edits(connection, _select_rows(connection, f"{where} AND turn = ?", (*values, turn_id)), cipher)
    return (WrittenTurn(turn_id, edits[0].session_id, edits),) if edits else ()


def mark_undone(
    connection: RowConnection, _session_id: str, edits: Sequence[LedgerEdit], uris: Iterable[str] | None
) -> None:
    """Mark files in the edits as undone. If `uris` is None, all files are marked."""
    for edit in edits:
        for entry in edit.entries:
            if uris is None or entry.write.uri in uris:
                connection.execute(
                    "UPDATE ledger SET undone = 1 WHERE edit = ? AND uri = ?",
                    (edit.intent.id, replace_surrogates(entry.write.uri)),
                )


def list_written_files(
    connection: RowConnection, workspace: str, since: datetime, cipher: StoreCipher
) -> Iterator[WrittenFile]:
    """Yield the files that turns have written, oldest first, without their texts."""
    rows = connection.execute(
        "SELECT ledger.turn, ledger.session, coalesce(ledger.new_uri, ledger.uri), coalesce(session.title, ''), "
        "ledger.made, ledger.undone "
        "FROM ledger LEFT JOIN session ON session.id = ledger.session "
        "WHERE ledger.workspace = ? AND ledger.outcome = 'applied' AND ledger.made >= ? "
        "ORDER BY ledger.made, ledger.position",
        (replace_surrogates(workspace), int(since.timestamp() * 10**9)),
    ).fetchall()
    ciphers = cipher.find_all(connection, {str(row[1]) for row in rows})
    return (
        WrittenFile(
            str(turn),
            str(session),
            str(uri),
            decrypt_title(ciphers[str(session)], title),
            parse_time(read_number(created)),
            bool(undone),
        )
        for turn, session, uri, title, created, undone in rows
    )


def list_file_edits(
    connection: RowConnection,
    workspace: str,
    uris: Sequence[str],
    since: datetime,
    limit: int,
    cipher: StoreCipher,
) -> tuple[LedgerEdit, ...]:
    """Return the newest applied edits of a file that were not undone, oldest first.

    `uris` contains the spellings of the file's current URI. Each edit contains only its changes to this file.
    """
    marks = ", ".join("?" * len(uris))
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM ledger WHERE coalesce(new_uri, uri) IN ({marks}) AND workspace = ? AND made >= ? "  # noqa: S608 - constants
        "AND outcome = 'applied' AND undone = 0 ORDER BY made DESC, edit, position LIMIT ?",
        (
            *map(replace_surrogates, uris),
            replace_surrogates(workspace),
            int(since.timestamp() * 10**9),
            limit,
        ),
    )
    return _build_edits(connection, rows.fetchall()[::-1], cipher)


def delete_old_edits(connection: RowConnection) -> None:
    """Delete old edits with a known outcome, because they contain the contents of files."""
    limit = time.time_ns() - RETENTION_DAYS * 86_400 * 10**9
    connection.execute("DELETE FROM ledger WHERE made < ? AND outcome IS NOT NULL", (limit,))


def _select_rows(connection: RowConnection, where: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
    query = f"SELECT {_COLUMNS} FROM ledger WHERE {where} ORDER BY made, edit, position"  # noqa: S608 - constants
    return connection.execute(query, values).fetchall()


def _build_edits(
    connection: RowConnection, rows: Sequence[tuple[Any, ...]], cipher: StoreCipher
) -> tuple[LedgerEdit, ...]:
    ciphers = cipher.find_all(connection, {str(row[1]) for row in rows})
    rows_by_edit: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        rows_by_edit.setdefault(str(row[0]), []).append(row)
    edits = []
    for edit, entries in rows_by_edit.items():
        _, session_id, workspace, turn, *_ = entries[0]
        entry_tuple = tuple(_build_entry(entry, ciphers[str(session_id)]) for entry in entries)
        edits.append(LedgerEdit(EditIntent(edit, str(session_id)), str(workspace), str(turn), entry_tuple))
    return tuple(edits)


def _encode_texts(
    cipher: SessionCipher, edit_id: str, write: PlannedWrite
) -> tuple[bytes | None, bytes | None, str | None, str | None]:
    """Return the texts before and after the edit and their digests, as they are stored."""
    row = (edit_id, replace_surrogates(write.uri))
    before, after = (
        None if text is None else cipher.encrypt(f"ledger.{column}", row, to_bytes(text))
        for column, text in (("before", write.before), ("after", write.after))
    )
    before_sha256, after_sha256 = (
        None if text is None else cipher.encrypt_text(f"ledger.{column}_sha256", row, hash_text(text))
        for column, text in (("before", write.before), ("after", write.after))
    )
    return before, after, before_sha256, after_sha256


def _build_entry(row: tuple[Any, ...], cipher: SessionCipher) -> LedgerEntry:
    uri, path, new_uri, version, *texts, before_sha, after_sha, outcome, undone, created = row[4:]
    place = (row[0], uri)
    before, after = (
        _decode_text(cipher.decrypt(f"ledger.{column}", place, text))
        for column, text in zip(("before", "after"), texts, strict=True)
    )
    before_sha256, after_sha256 = (
        None if digest is None else cipher.decrypt_text(f"ledger.{column}", place, digest) or ""
        for column, digest in (("before_sha256", before_sha), ("after_sha256", after_sha))
    )
    write = PlannedWrite(str(uri), str(path), before, after, version, new_uri)
    return LedgerEntry(write, before_sha256, after_sha256, outcome, bool(undone), parse_time(read_number(created)))


def _decode_text(data: bytes | None) -> str | None:
    """Decode a stored text. If the text is damaged, return the readable part, which does not match the digest."""
    if data is None:
        return None
    try:
        return to_text(data)
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
