"""Sessions for the tests of the store: random ones, one of every block kind, and stores on a folder."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.support.images import MAKERS, image
from thinklsp.core.messages import (
    AssistantMessage,
    OpaqueBlock,
    OpaqueState,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.core.usage import Usage
from thinklsp.sessions.ledger import PlannedWrite
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import CallUsage
from thinklsp.sessions.sqlite_store import SqliteStore

ORIGIN = Origin("anthropic", "m", "https://h", "fingerprint")
OTHER = Origin("google", "g", "https://other", "finger")
USAGE = Usage(input_tokens=10, output_tokens=5, cost_usd=0.25)
SPENT = CallUsage("t", "p", "m", USAGE)
EDIT = PlannedWrite("file:///a", "a", "1", "2")
SECRET = "EqQBCkYICxgCKkDcanarysignature0123456789"


def sealed(text: str = SECRET, origin: Origin = ORIGIN) -> OpaqueState:
    return OpaqueState(f'{{"signature": "{text}"}}', origin)


def database(folder: Path) -> Path:
    return folder / "sessions" / "sessions.db"


def run_sql(path: Path, statement: str, *values: object) -> list[Any]:
    """Run a statement on a connection of its own, and return its rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


def connection_of(store: SqliteStore) -> sqlite3.Connection:
    assert store._database.file is not None
    return store._database.file


EVERY_KIND = AssistantMessage(
    (
        ThinkingBlock("A summary.", sealed()),
        RedactedThinkingBlock(sealed(SECRET + "redacted")),
        TextBlock("An answer \ud83d alone, \u2028 and\0 all.", sealed("text", OTHER)),
        TextBlock("Not sealed."),
        ServerToolBlock("web_search", sealed(SECRET + "server")),
        OpaqueBlock("new_thing", sealed(SECRET + "opaque")),
        ToolUseBlock("a", "read_file", {"path": "a.py", "deep": [{"x": None, "y": 1.5}]}, sealed("call")),
        ToolUseBlock("b", "read_file", None),
    ),
    "tool_use",
)
WORDS = "An answer \ud83d alone, \u2028 and\0 all."
LONG = AssistantMessage((ThinkingBlock("Thought\n" * 40, sealed()), TextBlock("Short."), TextBlock(f"{WORDS}\n" * 9)))
RESULTS = UserMessage((ToolResultBlock("a", "text"), ToolResultBlock("b", "no", is_error=True), TextBlock("<note/>")))


def full_session(session: Session) -> Session:
    """What a change makes of an empty session: every kind of block, two steps, choices."""
    asked = session.add_choices({"effort": "high", "thinking.mode": "auto"}).add_user_message("First prompt.\nMore.")
    return asked.add_step(EVERY_KIND, RESULTS, USAGE).add_step(answer("The end."), None, USAGE)


def answer(text: str, *, secret: str | None = None) -> AssistantMessage:
    thoughts = () if secret is None else (ThinkingBlock("", sealed(secret)),)
    return AssistantMessage((*thoughts, TextBlock(text)))


def one_turn(number: int, session: Session) -> Session:
    asked = session.add_user_message(f"prompt {number}")
    call = AssistantMessage((ThinkingBlock("", sealed(f"s{number}")), ToolUseBlock(f"c{number}", "t", {})), "tool_use")
    results = UserMessage((ToolResultBlock(f"c{number}", f"result {number}"),))
    return asked.add_step(call, results, USAGE).add_step(answer(f"answer {number}"), None, USAGE)


@asynccontextmanager
async def opened(folder: Path, **how: Any) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(folder), **({"vault": NoVault} | how))
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def opened_with_session(folder: Path, **how: Any) -> AsyncIterator[tuple[SqliteStore, Session]]:
    """Open a store and keep a session of every kind of block in it."""
    async with opened(folder, **how) as store:
        yield store, await store.update((await store.create("w")).id, full_session)


class NoVault:
    """No keyring: whatever the machine of the test has stays out of it."""

    def __init__(self) -> None:
        raise ImportError("no keyring")


def files_of(folder: Path) -> list[Path]:
    return [Path(top) / name for top, _, names in os.walk(folder) for name in names]


def holding(folder: Path, needle: str) -> list[str]:
    """Names of the files below `folder` that hold these bytes."""
    return [path.name for path in files_of(folder) if needle.encode() in path.read_bytes()]


_words = st.text(st.characters(), max_size=30)
_texts = _words | st.builds(lambda text, times: text * times, _words, st.integers(4, 30))
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=6,
)
_names = st.text("abcdefgh", min_size=1, max_size=6)
_origins = st.builds(Origin, _names, _names, _names, _names)
_raws = st.builds(OpaqueState, _words, _origins)
_maybe = st.none() | _raws
_blocks = st.one_of(
    st.builds(TextBlock, _texts, _maybe),
    st.builds(ThinkingBlock, _texts, _maybe),
    st.builds(RedactedThinkingBlock, _raws),
    st.builds(ToolUseBlock, _names, _names, st.none() | st.dictionaries(_words, _json, max_size=3), _maybe),
    st.builds(ServerToolBlock, _names, _raws),
    st.builds(OpaqueBlock, _names, _raws),
)
_results = st.builds(ToolResultBlock, st.sampled_from("abcd"), _texts, st.booleans())
_pictures = st.builds(image, st.sampled_from(tuple(MAKERS)), _names)
_questions = st.builds(
    UserMessage, st.lists(_results | _pictures | st.builds(TextBlock, _texts), max_size=4).map(tuple)
)
_stops = st.sampled_from(("end_turn", "tool_use", "pause_turn", "refusal", "other"))
messages = _questions | st.builds(AssistantMessage, st.lists(_blocks, max_size=5).map(tuple), _stops)
conversations = st.lists(messages, max_size=8).map(tuple)


class Row(NamedTuple):
    name: str
    kind: str
    before: str | None
    after: str | None
    outcome: str | None
    undone: bool


def rows(home: Path) -> list[Row]:
    """In the order in which edits were sent. `before` and `after` are digests."""
    with closing(sqlite3.connect(f"file:{home}/state/sessions/sessions.db?mode=ro", uri=True)) as connection:
        found = connection.execute(
            "SELECT uri, kind, before_sha256, after_sha256, outcome, undone FROM ledger ORDER BY made, edit, position"
        ).fetchall()
    return [Row(uri.rpartition("/")[2], kind, *rest, bool(undone)) for uri, kind, *rest, undone in found]


def digest(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()
