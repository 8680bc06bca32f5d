"""The edits that other processes have recorded for a file, with the answers of the turns that made them.

Only the rows of prompts and of the last answers are decoded. Tool results and opaque state are not needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import AssistantMessage, Message, UserMessage
from thinklsp.sessions.codec import decode_message, read_number
from thinklsp.sessions.ledger import LedgerEdit
from thinklsp.sessions.row_connection import RowConnection
from thinklsp.sessions.session_cipher import SessionCipher, StoreCipher

_END = (2**62, 0)

_Place = tuple[int, int]
"""The generation and the sequence number of a message."""


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """The last text of a turn and its model. A missing or damaged value is empty."""

    text: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class EarlierEdit:
    """An edit of a file that another process has recorded.

    `before` is None if the edit created the file. `after` is None if the edit deleted the file.
    """

    id: str
    turn_id: str
    before: str | None
    after: str | None
    created: datetime
    answer: TurnAnswer


def describe_edits(
    edits: Sequence[LedgerEdit], read: Callable[[str, Collection[str]], Mapping[str, TurnAnswer]]
) -> tuple[EarlierEdit, ...]:
    """Return the edits with the answers of their turns. `read` returns the answers of turns of a session."""
    turns: dict[str, set[str]] = {}
    for edit in edits:
        turns.setdefault(edit.session_id, set()).add(edit.turn_id)
    answers: dict[str, TurnAnswer] = {}
    for session_id, turn_ids in turns.items():
        # The edits of a session that cannot be read are still shown, without the answers.
        with suppress(SessionError):
            answers |= read(session_id, turn_ids)
    return tuple(
        EarlierEdit(
            edit.intent.id,
            edit.turn_id,
            entry.write.before,
            entry.write.after,
            entry.created,
            answers.get(edit.turn_id, TurnAnswer()),
        )
        for edit in edits
        for entry in edit.entries
    )


def read_answers(
    connection: RowConnection, session_id: str, turn_ids: Collection[str], cipher: StoreCipher
) -> Mapping[str, TurnAnswer]:
    """Return the answers of the given turns of a session, also of turns that a compaction has replaced."""
    session_cipher = cipher.find(connection, session_id)
    models = _read_models(connection, session_id)
    skipped = _count_summary_messages(connection, session_id)
    starts = _find_turn_starts(connection, session_id, models, skipped, session_cipher)
    places = sorted(starts.values())
    answers = {}
    for turn_id in turn_ids:
        text = ""
        if turn_id in starts:
            end = next(iter(places[bisect_right(places, starts[turn_id]) :]), _END)
            text = _read_last_text(connection, session_id, (starts[turn_id], end), skipped, session_cipher)
        answers[turn_id] = TurnAnswer(text, models.get(turn_id, ""))
    return answers


def _read_models(connection: RowConnection, session_id: str) -> dict[str, str]:
    """Return the model of each turn's last step.

    Prompts that joined a running turn have no steps and therefore no entry.
    """
    rows = connection.execute(
        "SELECT turn, model FROM usage WHERE session = ? AND purpose = 'step' ORDER BY made", (session_id,)
    )
    return {str(turn): str(model) for turn, model in rows}


def _count_summary_messages(connection: RowConnection, session_id: str) -> dict[int, int]:
    """Return, for each generation, the number of first messages that only summarize the previous generation."""
    archives = connection.execute(
        "SELECT generation, kept FROM archive WHERE session = ? ORDER BY generation", (session_id,)
    ).fetchall()
    current = connection.execute("SELECT generation FROM session WHERE id = ?", (session_id,)).fetchall()
    generations = [read_number(generation) for (generation, *_) in chain(archives, current)]
    counts = [0, *(read_number(kept) for _, kept in archives)]
    return dict(zip(generations, counts, strict=False))


def _find_turn_starts(
    connection: RowConnection,
    session_id: str,
    turn_ids: Collection[str],
    skipped: Mapping[int, int],
    cipher: SessionCipher,
) -> dict[str, _Place]:
    """Return the place of each turn's prompt."""
    rows = connection.execute(
        "SELECT generation, sequence, role, stop_reason, blocks FROM message "
        "WHERE session = ? AND role = 'user' ORDER BY generation, sequence",
        (session_id,),
    )
    starts: dict[str, _Place] = {}
    for place, message in _decode_rows(rows, skipped, cipher, b'"turn":"'):
        for prompt in message.prompts if isinstance(message, UserMessage) else ():
            if prompt.turn_id in turn_ids:
                starts.setdefault(prompt.turn_id, place)
    return starts


def _read_last_text(
    connection: RowConnection,
    session_id: str,
    limits: tuple[_Place, _Place],
    skipped: Mapping[int, int],
    cipher: SessionCipher,
) -> str:
    """Return the text of the last answer between two places."""
    rows = connection.execute(
        "SELECT generation, sequence, role, stop_reason, blocks FROM message "
        "WHERE session = ? AND role = 'assistant' AND (generation, sequence) > (?, ?) "
        "AND (generation, sequence) < (?, ?) ORDER BY generation DESC, sequence DESC",
        (session_id, *limits[0], *limits[1]),
    )
    messages = (message for _, message in _decode_rows(rows, skipped, cipher))
    answers = (message.text for message in messages if isinstance(message, AssistantMessage))
    return next(filter(str.strip, answers), "")


def _decode_rows(
    rows: Iterable[tuple[object, object, str, str | None, object]],
    skipped: Mapping[int, int],
    cipher: SessionCipher,
    mark: bytes = b"",
) -> Iterable[tuple[_Place, Message]]:
    """Yield the readable messages that contain `mark`, with their places, without the messages that summarize a
    generation."""
    for generation, sequence, role, stop_reason, blocks in rows:
        place = read_number(generation), read_number(sequence)
        if place[0] not in skipped or place[1] < skipped[place[0]]:
            continue
        content = cipher.decrypt("message.blocks", place, blocks)
        if content is not None and mark in content:
            message = decode_message(role, stop_reason, content, {}).message
            if message is not None:
                yield place, message
