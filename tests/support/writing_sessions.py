"""`python -m tests.support.writing_sessions`: processes that write sessions until somebody kills them.

For each line of stdin, a folder, it forks such a process and prints its number. A process appends to the file `told`
in the folder what has been acknowledged: the id of its session, then one line for each step, compaction and intent;
and to `sizes` how many steps there were at which size of the log.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from tests.support.images import png
from tests.support.scripted_model import check_sendable
from tests.support.stored_sessions import USAGE, NoVault, answer, database, opened, sealed
from tests.support.watching import HANG_SECONDS
from thinklsp.core.images import parse_image
from thinklsp.core.messages import (
    AssistantMessage,
    ImageBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.sessions.ledger import PlannedWrite
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import CallUsage
from thinklsp.sessions.sqlite_store import SqliteStore

_ROOT = Path(__file__).parents[2]
WRITING = (sys.executable, "-m", "tests.support.writing_sessions")
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
    store = SqliteStore(str(folder), vault=NoVault)
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
