"""A-38: texts that keep parsers, matchers and edits busy. Meanwhile the server answers, cancels and exits."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.test_exits import with_editor
from tests.slow import hostile_texts as texts
from tests.slow.running import SLACK, Tally, needs_proc, say
from tests.slow.test_load import echo, told
from tests.support.client.actions import Request, ResponseError
from tests.support.epilogue import children, gauge
from tests.support.outside import Connect, Outside
from tests.support.signing_server import Text, Tool, answer, tool
from tests.support.sizes import SEED, tries

pytestmark = [needs_proc, pytest.mark.timing]
MAX_ECHO_MS, MAX_CANCEL_SECONDS, MAX_END_SECONDS, MAX_MB = 250, 1, 5, 60
BETWEEN = 5
CALLS = 3_000
CHAT = "chat.chat.md"
ENDS = {"SIGTERM": 128 + signal.SIGTERM, "death of the editor": 1}


@dataclass(frozen=True)
class Attack:
    files: Mapping[str, str]
    calls: tuple[Tool, ...] = ()
    says: str = "Done."


def source(language: str, shape: str) -> Attack:
    hostile, other = (f"{name}.{texts.SYNTAX[language].extension}" for name in ("hostile", "other"))
    calls = tool("outline", path=hostile), tool("definition", path=other, line=1, symbol="victim")
    return Attack({hostile: texts.hostile_source(language, shape), other: "victim\n"}, calls)


def ignore_file(kind: str) -> Attack:
    return Attack({".gitignore": texts.IGNORE_FILES[kind], **dict.fromkeys(texts.NAMES, "x")}, (tool("list_files"),))


def edit(kind: str) -> Attack:
    given = texts.EDITS[kind]
    arguments = {"path": "a.txt", "old_text": given.old, "new_text": given.new, "replace_all": given.replace_all}
    return Attack({"a.txt": given.text}, (Tool("edit_file", arguments, letters=50_000),))


def search(kind: str) -> Attack:
    return Attack({"a.txt": texts.LINES_TO_SEARCH[kind]}, (tool("search_text", pattern="a"),))


def many_calls() -> Attack:
    return Attack({"a.txt": "x" * 40_000}, (tool("read_file", path="a.txt"),) * CALLS)


def attacks() -> Iterator[tuple[str, Callable[[], Attack]]]:
    for language in texts.SYNTAX:
        for shape in texts.SHAPES:
            yield f"{language}: {shape}", lambda language=language, shape=shape: source(language, shape)  # type: ignore[misc]
    yield from ((f"ignore file: {kind}", lambda kind=kind: ignore_file(kind)) for kind in texts.IGNORE_FILES)  # type: ignore[misc]
    yield from ((f"edit: {kind}", lambda kind=kind: edit(kind)) for kind in texts.EDITS)  # type: ignore[misc]
    yield from ((f"search: {kind}", lambda kind=kind: search(kind)) for kind in texts.LINES_TO_SEARCH)  # type: ignore[misc]
    yield from ((f"answer: {kind}", lambda kind=kind: Attack({}, says=texts.ANSWERS[kind])) for kind in texts.ANSWERS)  # type: ignore[misc]
    yield "document: headings", lambda: Attack({CHAT: texts.DOCUMENT_OF_HEADINGS})
    yield f"{CALLS} calls", many_calls


ATTACKS = dict(attacks())


def chosen(count: int) -> list[str]:
    """Choose all attacks, or one of each kind and random sources."""
    chance = random.Random(SEED)
    names = list(ATTACKS)
    chance.shuffle(names)
    kinds = {name.partition(":")[0]: name for name in names}
    first = [name for kind, name in kinds.items() if kind not in texts.SYNTAX]
    return [*first, *(name for name in names if name not in first)][:count]


@dataclass
class Strain:
    """The effects of an attack. `memory`: megabytes above the beginning; `workers`: megabytes of the largest worker."""

    echoes: list[float]
    cancel: float = 0.0
    end: float = 0.0
    memory: float = 0.0
    workers: float = 0.0

    def faults(self, slack: int = 1) -> list[str]:
        limits = {
            "echo p99": (told(self.echoes)["p99"], slack * MAX_ECHO_MS),
            "cancel": (self.cancel, slack * MAX_CANCEL_SECONDS),
            "end": (self.end, slack * MAX_END_SECONDS),
            "memory": (self.memory, MAX_MB),
        }
        return [f"{name} {value:.1f}" for name, (value, limit) in limits.items() if value >= limit]

    def __str__(self) -> str:
        times = {name: f"{value:.0f}" for name, value in told(self.echoes).items()}
        ends = f"cancel {self.cancel * 1000:.0f} ms, end {self.end * 1000:.0f} ms"
        return f"{len(self.echoes)} echoes {times} ms, {ends}, {self.memory:+.0f} MB, worker {self.workers:.0f} MB"


async def strike(place: Path, attack: Attack, end: str, connect: Connect) -> Strain:
    files = {CHAT: "## You\n\nHello.\n", **attack.files}
    async with with_editor(place, connect, files=files) as (outside, editor):
        strain = await measured(outside, attack)
        if attack.calls:
            strain.cancel = await cancelled(outside, attack)
        strain.end = await ended(outside, attack, end, editor)
        assert outside.leaks() == []
        assert outside.held() == ""
    return strain


async def measured(outside: Outside, attack: Attack) -> Strain:
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
    outside.provider.script[:] = [*script, answer(Text(text), letters=50_000)]


def begun(outside: Outside, attack: Attack) -> Request:
    say_in(outside, attack.says, *attack.calls)
    if attack.calls:
        return outside.client.command("thinklsp.chat", {"prompt": "Go.", "partialResultToken": "p"}, token="t")
    uri = outside.open(CHAT)
    return outside.client.command("thinklsp.send", {"uri": uri}, token="t")


def is_shown(outside: Outside, attack: Attack) -> bool:
    return bool(attack.calls) or "## thinklsp" in outside.client.desk.open[outside.uri(CHAT)].text


async def at_work(outside: Outside, turn: Request, tools: int) -> None:
    client = outside.client

    def works() -> bool:
        return turn.answered or sum(value["kind"] == "tool" for value in client.progress("p")) > tools

    await client.wait_for(works, within=60, what="the beginning of the work")
    for _ in range(BETWEEN):
        await echo(client)


def tools_so_far(outside: Outside) -> int:
    return sum(value["kind"] == "tool" for value in outside.client.progress("p"))


async def cancelled(outside: Outside, attack: Attack) -> float:
    tools = tools_so_far(outside)
    turn = begun(outside, attack)
    await at_work(outside, turn, tools)
    at = time.monotonic()
    outside.client.cancel(turn)
    with suppress(ResponseError):
        await turn
    return time.monotonic() - at


async def ended(outside: Outside, attack: Attack, end: str, editor: subprocess.Popen[bytes]) -> float:
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
    tmp_path: Path, number: int, name: str, servers: Connect, tally: Tally
) -> None:
    """H-F1 to H-F5, H-F18, H-F21."""
    end = list(ENDS)[number % len(ENDS)]
    strain = await strike(tmp_path, ATTACKS[name](), end, servers)
    say(f"{name}: {strain}")
    assert strain.faults(SLACK) == []
    tally("A-38", 1)
