"""Sessions for the tests of the store: random ones, one of every block kind, and stores on a folder."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.support.images import MAKERS, image, png
from tests.support.scripted_model import check_sendable
from tests.support.watching import HANG_SECONDS
from thinklsp.core.images import parse_image
from thinklsp.core.messages import (
    AssistantMessage,
    ImageBlock,
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
    store = SqliteStore(str(folder), **how)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def opened_with_session(folder: Path, **how: Any) -> AsyncIterator[tuple[SqliteStore, Session]]:
    """Open a store and keep a session of every kind of block in it."""
    async with opened(folder, **how) as store:
        yield store, await store.update((await store.create("w")).id, full_session)


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


_ROOT = Path(__file__).parents[2]
WRITING = (sys.executable, "-m", "tests.support.stored_sessions")
_COMPACT_EVERY = 9
_RESTORE_AFTER = 4


class Writers:
    """Starts them, where the first import is paid once, and kills those that are left in the end."""

    def __init__(self, source: subprocess.Popen[str]) -> None:
        self._source = source
        self._running: set[int] = set()

    def start(self, folder: Path) -> int:
        assert self._source.stdin is not None
        assert self._source.stdout is not None
        self._source.stdin.write(f"{folder}\n")
        self._source.stdin.flush()
        pid = int(self._source.stdout.readline())
        self._running.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        self._running.remove(pid)
        os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        for pid in tuple(self._running):
            self.kill(pid)


@contextmanager
def writers(argv: Sequence[str] = WRITING) -> Iterator[Writers]:
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        source = Writers(process)
        try:
            yield source
        finally:
            source.kill_all()


async def until_told(folder: Path, lines: int, *, within: float = HANG_SECONDS) -> list[str]:
    async with asyncio.timeout(within):
        while len(found := told(folder)) < lines:  # noqa: ASYNC110 - another process tells; there is no event for it
            await asyncio.sleep(0.002)
    return found


def told(folder: Path) -> list[str]:
    path = folder / "told"
    return path.read_text().splitlines() if path.exists() else []


def call_of(number: int) -> AssistantMessage:
    blocks = (ThinkingBlock("", sealed(f"s{number}")), ToolUseBlock(f"c{number}", "read_file", {"n": number}))
    return AssistantMessage(blocks, "tool_use")


def pictures(number: int) -> tuple[ImageBlock, ...]:
    """Return the images of a prompt: every third has some, which later prompts and archives have, too."""
    contents = (png(shade=number % 4) + bytes(20_000), png(shade=number % 7)) if number % 3 == 0 else ()
    return tuple(parse_image("shot.png", content, "image/png") for content in contents)


def ask(number: int, session: Session) -> Session:
    return session.add_user_message(f"prompt {number}", images=pictures(number))


def step(number: int, session: Session) -> Session:
    """Step `number`: an even one calls a tool, an odd one ends a turn."""
    if number % 2:
        return session.add_step(answer(f"answer {number}"), None, USAGE)
    result = UserMessage((ToolResultBlock(f"c{number}", f"result {number} " + "x" * 2000),))
    return session.add_step(call_of(number), result, USAGE)


def summarised(session: Session) -> Session:
    summary = UserMessage.from_text(f"Summary of {session.steps} steps.")
    return session.replace_conversation((summary, *session.conversation[-3:]))


def is_compacted_after(number: int) -> bool:
    """Return whether a compaction follows this step."""
    return number > 0 and number % 2 == 1 and number % _COMPACT_EVERY == _COMPACT_EVERY - 1


def is_restored_after(number: int) -> bool:
    """Return whether the compaction of `_RESTORE_AFTER` steps before is undone after this step: every second one is."""
    compacted = number - _RESTORE_AFTER
    return is_compacted_after(compacted) and compacted // (2 * _COMPACT_EVERY) % 2 == 1


async def write(folder: Path) -> None:
    store = SqliteStore(str(folder))
    out, sizes = (os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("told", "sizes"))
    log = f"{database(folder)}-wal"
    session = await store.create("w")
    os.write(out, f"session {session.id}\n".encode())
    for number in range(100_000):
        if number % 2 == 0:
            session = await store.update(session.id, lambda now, n=number: ask(n, now))
        spent = CallUsage(f"t{number // 2}", "p", "m", USAGE)
        session = await store.update(session.id, lambda now, n=number: step(n, now), spent)
        os.write(out, f"step {session.steps}\n".encode())
        os.write(sizes, f"{session.steps} {os.stat(log).st_size}\n".encode())
        if number % 2:
            edit = PlannedWrite("file:///a", "a", str(number), str(number + 1))
            intent = await store.record_intent(session.id, "w", f"t{number}", (edit,))
            os.write(out, f"intent {intent.id}\n".encode())
            await store.settle_edit(intent, {"file:///a": "applied"})
            os.write(out, f"settled {intent.id}\n".encode())
        if is_compacted_after(number):
            session, archive = await store.compact(session.id, summarised, "note")
            os.write(out, f"compacted {archive}\n".encode())
        elif is_restored_after(number):
            session = await store.restore_archive(session.id, archive, lambda message: message)
            os.write(out, f"restored {archive}\n".encode())


async def gone(pid: int) -> None:
    """A signal is on its way for a moment; its process may hold locks until it is gone."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(0.001)


async def killed_at(folder: Path, source: Writers, random: Random) -> int:
    """Kills a writer after a random number of acknowledgements and a moment more; says how many there were."""
    pid = source.start(folder)
    await until_told(folder, random.randint(0, 60))
    await asyncio.sleep(random.uniform(0, 0.01))
    source.kill(pid)
    await gone(pid)
    return len(told(folder))


async def check_survival(folder: Path) -> float:
    """Everything that was acknowledged is there, nothing is torn, and it can go on. The seconds that reopening took."""
    lines = [line.split() for line in told(folder)]
    if not lines:
        return 0.0
    values = {kind: [value for name, value in lines if name == kind] for kind, _ in lines}
    clock = asyncio.get_running_loop().time
    begun = clock()
    async with opened(folder) as store:
        listed = {summary.id: summary for summary in await store.list_sessions("w")}
        took = clock() - begun
        [session_id] = values["session"]
        steps = values.get("step", [])
        if not steps and session_id not in listed:
            return took
        session = await store.get(session_id, "w")
        assert session.steps in (len(steps), len(steps) + 1), "a step was lost, or came from nowhere"
        archives = await store.list_archives(session_id)
        kept = [archive for archive in values.get("compacted", []) if archive not in values.get("restored", [])]
        if is_restored_after(session.steps - 1):
            # The kill may have come before the restore was told of.
            was_told = values["compacted"][-1] in values.get("restored", [])
            found = [archive.id for archive in archives]
            assert found == kept or (not was_told and found == kept[:-1]), "an archive is lost, or from nowhere"
        else:
            assert {*kept} <= {archive.id for archive in archives}, "an archive is lost"
            assert len(archives) <= len(kept) + 1
        check_content(session)
        for archive in archives:
            assert len((await store.read_archive(session_id, archive.id)).conversation) == archive.messages
        assert ((await store.report_usage(session_id)).total.input_tokens or 0) == 10 * session.steps
        unknown = {edit.intent.id for edit in await store.list_unknown_edits("w")}
        settled, intents = {*values.get("settled", [])}, {*values.get("intent", [])}
        assert not unknown & settled, "an edit that was settled is in doubt"
        assert len(unknown - intents) <= 1, "only the last one may not have been told of"
        made = await store.list_written_files("w", datetime.fromtimestamp(0, UTC))
        assert len(settled) <= len(made), "what became of an edit is forgotten"
        assert len(intents) <= len(made) + len(unknown) <= len(intents) + 1, "an edit is forgotten, or from nowhere"
        check_sendable((await store.update(session_id, lambda now: now.add_user_message("Next."))).conversation)
        assert store.problems == ()
    return took


def check_content(session: Session) -> None:
    """Each message is the one that was written, whole and in its place."""
    expected = [Session(session.id, "w")]
    replaced = expected[0]
    for number in range(session.steps):
        last = expected[-1]
        last = step(number, last if number % 2 else ask(number, last))
        expected = [last]
        if is_compacted_after(number):
            replaced = last
            expected.append(summarised(last))
        elif is_restored_after(number):
            since = last.conversation[len(summarised(replaced).conversation) :]
            expected.append(last.replace_conversation((*replaced.conversation, *since)))
    candidates = [*expected, *(ask(session.steps, candidate) for candidate in expected)]
    assert session.conversation in [candidate.conversation for candidate in candidates], "a turn is torn"


def fork_for_each_line(work: Callable[[Path], object]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            work(Path(line.strip()))
            os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def main() -> None:
    fork_for_each_line(lambda folder: asyncio.run(write(folder)))


if __name__ == "__main__":
    main()
