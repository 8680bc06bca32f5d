"""The edit ledger, which records every edit sent to the editor and its outcome.

An edit is stored before it is sent, and its outcome is stored after the editor has responded. If the process exits in
between, the outcome is unknown. The edit is then compared with the file, but never sent again. An undo is recorded as
an edit of the same turn and cannot be undone itself.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import UserMessage
from thinklsp.sessions.codec import decode_message, parse_time, replace_surrogates, to_bytes, to_text
from thinklsp.sessions.encryption import RowConnection, SessionCipher, decrypt_title

WriteOutcome = Literal["applied", "refused", "unknown"]
EditKind = Literal["change", "create", "rename", "delete"]
RETENTION_DAYS = 30
_COLUMNS = (
    "edit, session, workspace, turn, uri, path, new_uri, version, before, after, before_sha256, after_sha256, outcome, "
    "undone, made"
)


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


@dataclass(frozen=True, slots=True)
class EarlierEdit:
    """An edit of a file that was recorded earlier, here or by another process.

    `before` is None if the edit created the file. `after` is None if the edit deleted the file. `answer` is the last
    text of the turn that made the edit, and `model` is the model of its last step. Missing or damaged values are empty.
    """

    id: str
    turn_id: str
    before: str | None
    after: str | None
    created: datetime
    answer: str
    model: str


def compute_sha256(text: str | None) -> str | None:
    """Return the SHA-256 digest of `text`, or None if `text` is None."""
    return None if text is None else hashlib.sha256(to_bytes(text)).hexdigest()


def write_intent(
    connection: RowConnection,
    session_id: str,
    workspace: str,
    turn_id: str,
    writes: Sequence[PlannedWrite],
    *,
    writer: str,
    is_undo: bool,
) -> EditIntent:
    """Store an edit. The server may send the edit only after the transaction has been committed."""
    intent = EditIntent(secrets.token_hex(16), session_id)
    names = (session_id, replace_surrogates(workspace), turn_id, writer)
    now = time.time_ns()
    session_cipher = connection.cipher.ensure(connection, session_id)
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
) -> None:
    """Store the outcomes of an edit by URI. Files without an outcome remain unknown.

    `parts` replaces the planned changes of files that the editor changed differently, for example only in part.
    """
    for uri, outcome in outcomes.items():
        connection.execute(
            "UPDATE ledger SET outcome = ? WHERE edit = ? AND uri = ?", (outcome, edit_id, replace_surrogates(uri))
        )
    for part in parts:
        texts = _encode_texts(connection.cipher.find(connection, session_id), edit_id, part)
        new_uri = None if part.new_uri is None else replace_surrogates(part.new_uri)
        connection.execute(
            "UPDATE ledger SET kind = ?, new_uri = ?, before = ?, after = ?, before_sha256 = ?, after_sha256 = ? "
            "WHERE edit = ? AND uri = ?",
            (part.kind, new_uri, *texts, edit_id, replace_surrogates(part.uri)),
        )


def list_unsettled(connection: RowConnection, workspace: str, writer: str) -> tuple[LedgerEdit, ...]:
    """Return the edits of other processes whose outcome is unknown."""
    where = "workspace = ? AND outcome IS NULL AND writer != ?"
    rows = _select_rows(connection, where, (replace_surrogates(workspace), writer))
    ciphers = connection.cipher.find_all(connection, {str(row[1]) for row in rows})
    # Without the key of its session, an edit cannot be compared with the file.
    return _build_edits(connection, [row for row in rows if ciphers[str(row[1])].can_decrypt])


def find_written_turn(
    connection: RowConnection, workspace: str, turn_id: str | None = None, session_id: str | None = None
) -> WrittenTurn | None:
    """Return the edits of a turn that can be undone, or None.

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
            return None
        turn_id = str(row[0])
    edits = _build_edits(connection, _select_rows(connection, f"{where} AND turn = ?", (*values, turn_id)))
    return WrittenTurn(turn_id, edits[0].session_id, edits) if edits else None


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


def list_written_files(connection: RowConnection, workspace: str, since: datetime) -> tuple[WrittenFile, ...]:
    """Return the files that turns have written, oldest first, without their texts."""
    rows = connection.execute(
        "SELECT ledger.turn, ledger.session, coalesce(ledger.new_uri, ledger.uri), coalesce(session.title, ''), "
        "ledger.made, ledger.undone "
        "FROM ledger LEFT JOIN session ON session.id = ledger.session "
        "WHERE ledger.workspace = ? AND ledger.outcome = 'applied' AND ledger.made >= ? "
        "ORDER BY ledger.made, ledger.position",
        (replace_surrogates(workspace), int(since.timestamp() * 10**9)),
    ).fetchall()
    ciphers = connection.cipher.find_all(connection, {str(row[1]) for row in rows})
    return tuple(
        WrittenFile(
            str(turn),
            str(session),
            str(uri),
            decrypt_title(ciphers[str(session)], title),
            parse_time(created),
            bool(undone),
        )
        for turn, session, uri, title, created, undone in rows
    )


def list_earlier_edits(
    connection: RowConnection, workspace: str, uris: Sequence[str], since: datetime, limit: int
) -> tuple[EarlierEdit, ...]:
    """Return the newest applied edits of a file that were not undone, oldest first.

    `uris` contains the spellings of the file's current URI.
    """
    marks = ", ".join("?" * len(uris))
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM ledger WHERE coalesce(new_uri, uri) IN ({marks}) AND workspace = ? AND made >= ? "  # noqa: S608 - constants
        "AND outcome = 'applied' AND undone = 0 ORDER BY made DESC, edit, position LIMIT ?",
        (*map(replace_surrogates, uris), replace_surrogates(workspace), int(since.timestamp() * 10**9), limit),
    )
    edits = _build_edits(connection, rows.fetchall()[::-1])
    answers: dict[str, tuple[str, str]] = {}
    for session_id in {edit.session_id for edit in edits}:
        # The edits of a session that cannot be read are still shown, without the answers.
        with suppress(SessionError):
            answers |= _read_answers(connection, session_id, {edit.turn_id for edit in edits})
    return tuple(
        EarlierEdit(
            edit.intent.id,
            edit.turn_id,
            entry.write.before,
            entry.write.after,
            entry.created,
            *answers.get(edit.turn_id, ("", "")),
        )
        for edit in edits
        for entry in edit.entries
    )


def delete_old_edits(connection: RowConnection) -> None:
    """Delete old edits with a known outcome, because they contain the contents of files."""
    limit = time.time_ns() - RETENTION_DAYS * 86_400 * 10**9
    connection.execute("DELETE FROM ledger WHERE made < ? AND outcome IS NOT NULL", (limit,))


def _select_rows(connection: RowConnection, where: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
    query = f"SELECT {_COLUMNS} FROM ledger WHERE {where} ORDER BY made, edit, position"  # noqa: S608 - constants
    return connection.execute(query, values).fetchall()


def _build_edits(connection: RowConnection, rows: Sequence[tuple[Any, ...]]) -> tuple[LedgerEdit, ...]:
    ciphers = connection.cipher.find_all(connection, {str(row[1]) for row in rows})
    rows_by_edit: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        rows_by_edit.setdefault(str(row[0]), []).append(row)
    edits = []
    for edit, entries in rows_by_edit.items():
        _, session_id, workspace, turn, *_ = entries[0]
        entry_tuple = tuple(_build_entry(entry, ciphers[str(session_id)]) for entry in entries)
        edits.append(LedgerEdit(EditIntent(edit, str(session_id)), str(workspace), str(turn), entry_tuple))
    return tuple(edits)


def _encode_texts(cipher: SessionCipher, edit_id: str, write: PlannedWrite) -> tuple[bytes | str | None, ...]:
    """Return the texts before and after the edit and their digests, as they are stored."""
    row = (edit_id, replace_surrogates(write.uri))
    texts = (("before", write.before), ("after", write.after))
    return (
        *(None if text is None else cipher.encrypt(f"ledger.{name}", row, to_bytes(text)) for name, text in texts),
        *(
            None if digest is None else cipher.encrypt_text(f"ledger.{name}_sha256", row, digest)
            for name, digest in ((name, compute_sha256(text)) for name, text in texts)
        ),
    )


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
    return LedgerEntry(write, before_sha256, after_sha256, outcome, bool(undone), parse_time(created))


def _read_answers(
    connection: RowConnection, session_id: str, turn_ids: Collection[str]
) -> Mapping[str, tuple[str, str]]:
    """Return the answer and the model of the given turns of a session, also of turns that a compaction has replaced.

    Only the rows of prompts and of answers in these turns are decoded.
    """
    cipher = connection.cipher.find(connection, session_id)
    usage = "SELECT turn, model FROM usage WHERE session = ? AND purpose = 'step' ORDER BY made"
    # Prompts that joined a running turn have no steps and therefore no model.
    models = {str(turn): str(model) for turn, model in connection.execute(usage, (session_id,))}
    answers = {turn: ("", model) for turn, model in models.items() if turn in turn_ids}
    # The first messages after a compaction only summarize the earlier ones.
    rows = connection.execute(
        "SELECT generation, sequence, role, stop_reason, blocks FROM message WHERE session = ? AND sequence >= "
        "coalesce((SELECT kept FROM archive WHERE archive.session = message.session "
        "AND archive.generation < message.generation ORDER BY archive.generation DESC LIMIT 1), 0) "
        "ORDER BY generation, sequence",
        (session_id,),
    )
    turn_id = ""
    for generation, sequence, role, stop_reason, blocks in rows:
        if role != "user" and turn_id not in answers:
            continue
        content = cipher.decrypt("message.blocks", (generation, sequence), blocks)
        if content is None or (role == "user" and b'"turn":"' not in content):
            continue
        message = decode_message(role, stop_reason, content, {}).message
        if isinstance(message, UserMessage):
            turn_id = next((prompt.turn_id for prompt in message.prompts if prompt.turn_id in models), turn_id)
        elif message is not None and message.text.strip():
            answers[turn_id] = (message.text, models[turn_id])
    return answers


def _decode_text(data: bytes | None) -> str | None:
    """Decode a stored text. If the text is damaged, return the readable part, which does not match the digest."""
    if data is None:
        return None
    try:
        return to_text(data)
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
