"""A-38: texts that made parsers, matchers and edits run without an end. Meanwhile the server answers, cancels and ends.

For each attack one server: the model works on the text while echoes are measured, works on it again until the turn is
cancelled, and a third time until a signal or the death of the editor ends the server. `python -m
tests.slow.test_hostile_work FILE [BEGINNING]` makes a table of the attacks with this beginning, or of all.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.test_exits import an_editor
from tests.slow.running import SLACK, say
from tests.slow.test_load import echo, told
from tests.support.epilogue import check_left_behind, children
from tests.support.gauges import gauge
from tests.support.hostile_texts import (
    ANSWERS,
    EDITS,
    IGNORE_FILES,
    LINES_TO_SEARCH,
    NAMES,
    SHAPES,
    SYNTAX,
    hostile_source,
)
from tests.support.outside import Connect, Outside, own_server, start
from tests.support.raw_client import Request, ResponseError
from tests.support.signing_script import Text, Tool, answer, tool
from tests.support.sizes import SEED, tries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are measured in /proc")
MAX_ECHO_MS, MAX_CANCEL_SECONDS, MAX_END_SECONDS, MAX_MB = 250, 1, 5, 60
# Echoes that are answered between the beginning of the work and its end.
BETWEEN = 5
CALLS = 3_000
CHAT = "chat.chat.md"
ENDS = {"SIGTERM": 128 + signal.SIGTERM, "death of the editor": 1}


@dataclass(frozen=True)
class Attack:
    """Files of a workspace, what the model calls in it, and what it says then."""

    files: Mapping[str, str]
    calls: tuple[Tool, ...] = ()
    says: str = "Done."


def source(language: str, shape: str) -> Attack:
    hostile, other = (f"{name}.{SYNTAX[language].extension}" for name in ("hostile", "other"))
    calls = tool("outline", path=hostile), tool("definition", path=other, line=1, symbol="victim")
    return Attack({hostile: hostile_source(language, shape), other: "victim\n"}, calls)


def ignore_file(kind: str) -> Attack:
    return Attack({".gitignore": IGNORE_FILES[kind], **dict.fromkeys(NAMES, "x")}, (tool("list_files"),))


def edit(kind: str) -> Attack:
    given = EDITS[kind]
    arguments = {"path": "a.txt", "old_text": given.old, "new_text": given.new, "replace_all": given.replace_all}
    return Attack({"a.txt": given.text}, (Tool("edit_file", arguments, letters=50_000),))


def search(kind: str) -> Attack:
    return Attack({"a.txt": LINES_TO_SEARCH[kind]}, (tool("search_text", pattern="a"),))


def many_calls() -> Attack:
    return Attack({"a.txt": "x" * 40_000}, (tool("read_file", path="a.txt"),) * CALLS)


def attacks() -> Iterator[tuple[str, Callable[[], Attack]]]:
    for language in SYNTAX:
        for shape in SHAPES:
            yield f"{language}: {shape}", lambda language=language, shape=shape: source(language, shape)  # type: ignore[misc]
    yield from ((f"ignore file: {kind}", lambda kind=kind: ignore_file(kind)) for kind in IGNORE_FILES)  # type: ignore[misc]
    yield from ((f"edit: {kind}", lambda kind=kind: edit(kind)) for kind in EDITS)  # type: ignore[misc]
    yield from ((f"search: {kind}", lambda kind=kind: search(kind)) for kind in LINES_TO_SEARCH)  # type: ignore[misc]
    yield from ((f"answer: {kind}", lambda kind=kind: Attack({}, says=ANSWERS[kind])) for kind in ANSWERS)  # type: ignore[misc]
    yield f"{CALLS} calls", many_calls


ATTACKS = dict(attacks())


def chosen(count: int) -> list[str]:
    """All of them, or one of each kind and sources at random."""
    chance = random.Random(SEED)
    names = list(ATTACKS)
    chance.shuffle(names)
    kinds = {name.partition(":")[0]: name for name in names}
    first = [name for kind, name in kinds.items() if kind not in SYNTAX]
    return [*first, *(name for name in names if name not in first)][:count]


@dataclass
class Strain:
    """What an attack did to the server. `memory`: megabytes more than before; `workers`: those of its largest one."""

    echoes: list[float]
    cancel: float = 0.0
    end: float = 0.0
    memory: float = 0.0
    workers: float = 0.0

    def faults(self, slack: int = 1) -> list[str]:
        """What exceeds its limit; times may be longer by the factor `slack`."""
        limits = {
            "echo p99": (told(self.echoes)["p99"], slack * MAX_ECHO_MS),
            "cancel": (self.cancel, slack * MAX_CANCEL_SECONDS),
            "end": (self.end, slack * MAX_END_SECONDS),
            "memory": (self.memory, MAX_MB),
        }
        return [f"{name} {value:.1f}" for name, (value, limit) in limits.items() if value >= limit]

    def __str__(self) -> str:
        echo = told(self.echoes)
        return (
            f"{len(self.echoes)} | {echo['p50']:.0f} | {echo['p99']:.0f} | {echo['max']:.0f} | "
            f"{self.cancel * 1000:.0f} | {self.end * 1000:.0f} | {self.memory:+.0f} | {self.workers:.0f}"
        )


async def strike(place: Path, attack: Attack, end: str, connect: Connect) -> Strain:
    files = {**attack.files, CHAT: "## You\n\nHello.\n"}
    outside = await start(place, files=files, connect=connect, initialize=False)
    with an_editor() as editor:
        try:
            await outside.client.initialize(outside.root, options=outside.client.editor.settings, process=editor.pid)
            strain = await measured(outside, attack)
            if attack.calls:
                strain.cancel = await cancelled(outside, attack)
            strain.end = await ended(outside, attack, end, editor)
            assert outside.leaks() == []
            assert outside.held() == ""
            await check_left_behind(outside)
        finally:
            await outside.stop()
            editor.kill()
    return strain


async def measured(outside: Outside, attack: Attack) -> Strain:
    """One turn that works on the text, and echoes until its end."""
    say_in(outside, "Yes.")
    await outside.turn("thinklsp.chat", {"prompt": "Hello."})
    process = outside.client.process.pid
    before = gauge(process).private
    strain = Strain([])
    turn = begun(outside, attack)
    while not (turn.answered and is_shown(outside, attack)):
        strain.echoes.append(await echo(outside.client))
        strain.memory = max(strain.memory, gauge(process).private - before)
        strain.workers = max([strain.workers, *worker_memory(process)])
        await asyncio.sleep(0.02)
    assert (await turn)["stopReason"] == "end_turn"
    return strain


def worker_memory(process: int) -> Iterator[float]:
    for child in children(process):
        try:
            yield gauge(child).private
        except (OSError, KeyError):
            continue  # It has just ended.


def say_in(outside: Outside, text: str, *calls: Tool) -> None:
    script = [answer(*calls)] if calls else []
    outside.provider.script[:] = [*script, answer(Text(text), letters=50_000)]  # type: ignore[attr-defined] # a signing server


def begun(outside: Outside, attack: Attack) -> Request:
    """A turn that works on the text; in a chat document if it is the answer that is hostile."""
    say_in(outside, attack.says, *attack.calls)
    if attack.calls:
        return outside.client.command("thinklsp.chat", {"prompt": "Go.", "partialResultToken": "p"}, token="t")
    uri = outside.open(CHAT)
    return outside.client.command("thinklsp.send", {"uri": uri}, token="t")


def is_shown(outside: Outside, attack: Attack) -> bool:
    return bool(attack.calls) or "## thinklsp" in outside.client.desk.open[outside.uri(CHAT)].text


async def at_work(outside: Outside, turn: Request, tools: int) -> None:
    """Wait until a tool of the turn has begun and some echoes were answered since, or the turn has ended."""
    client = outside.client

    def works() -> bool:
        return turn.answered or sum(value["kind"] == "tool" for value in client.progress("p")) > tools

    await client.wait_for(works, within=20, what="the beginning of the work")
    for _ in range(BETWEEN):
        await echo(client)


def tools_so_far(outside: Outside) -> int:
    return sum(value["kind"] == "tool" for value in outside.client.progress("p"))


async def cancelled(outside: Outside, attack: Attack) -> float:
    """Seconds until a cancelled turn is answered."""
    tools = tools_so_far(outside)
    turn = begun(outside, attack)
    await at_work(outside, turn, tools)
    at = time.monotonic()
    outside.client.cancel(turn)
    with suppress(ResponseError):
        await turn
    return time.monotonic() - at


async def ended(outside: Outside, attack: Attack, end: str, editor: subprocess.Popen[bytes]) -> float:
    """Seconds until the process has gone."""
    tools = tools_so_far(outside)
    if attack.calls:
        await at_work(outside, begun(outside, attack), tools)
    at = time.monotonic()
    if end == "SIGTERM":
        outside.client.process.send_signal(signal.SIGTERM)
    else:
        editor.kill()
        await asyncio.to_thread(editor.wait)
    async with asyncio.timeout(SLACK * MAX_END_SECONDS):
        assert await outside.client.process.wait() == ENDS[end]
    took = time.monotonic() - at
    await outside.client.gone()
    return took


@pytest.mark.parametrize(("number", "name"), list(enumerate(chosen(tries("A-38")))))
async def test_the_server_answers_while_a_text_is_hostile(
    tmp_path: Path, number: int, name: str, servers: Connect, tally: Callable[[str, int], None]
) -> None:
    """H-F1 to H-F5, H-F18, H-F21."""
    end = list(ENDS)[number % len(ENDS)]
    strain = await strike(tmp_path, ATTACKS[name](), end, servers)
    say(f"{name}: {strain}")
    assert strain.faults(SLACK) == []
    tally("A-38", 1)


def main(path: Path, beginning: str = "") -> int:
    """Write a table of the attacks with this beginning. Return the number of those that exceed a limit."""
    wrong = 0
    with path.open("w", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        file.write("| attack | echoes | p50 ms | p99 | max | cancel ms | end ms | MB | worker MB | ended by | |\n")
        for number, name in enumerate(name for name in ATTACKS if name.startswith(beginning)):
            end = list(ENDS)[number % len(ENDS)]
            try:
                strain = asyncio.run(strike(Path(folder) / str(number), ATTACKS[name](), end, own_server))
                row, faults = str(strain), ", ".join(strain.faults())
            except (AssertionError, TimeoutError) as error:
                row, faults = "", f"{type(error).__name__}: {error}".replace("\n", " ")[:1_000]
            wrong += bool(faults)
            file.write(f"| {name} | {row} | {end} | {faults} |\n")
            file.flush()
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(Path(sys.argv[1]), *sys.argv[2:])))
