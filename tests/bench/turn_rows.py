"""Row 11: the cost of a long history, for the body of a late request and for the whole server. Rows 12 and 13: the
share of input tokens read from the prompt cache, and the server's own time in a turn."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace

from tests.bench.latency_rows import chat, opened, served, talking, timed_turn
from tests.bench.measure import Bench, Figure, compared, cpu_elapsed, cpu_seconds, exponent, in_turn
from tests.bench.source import Play, anthropic, source, words
from tests.support.anthropic_samples import PLAIN, call, result, text, thinking
from tests.support.outside import Outside
from tests.support.signing_server import Text, Thinking, answer, tool
from thinklsp.core.messages import AssistantMessage, Message, UserMessage
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.base import Endpoint

_FILE = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(800))
_PACE = 150.0


async def cache(bench: Bench) -> list[Figure]:
    """Row 12, with a service that simulates the prompt cache of Anthropic."""
    steps, turns = 20, 15 if bench.quick else 50
    read = [
        answer(Thinking(), tool("read_file", path="a.py", start_line=40 * n + 1, end_line=40 * n + 40))
        for n in range(steps - 1)
    ]
    async with opened(bench.folder / "loop", *read, answer(Text("Done.")), files={"a.py": _FILE}) as outside:
        loop = _share([(await outside.turn("thinklsp.chat", {"prompt": "Read all of a.py."}))["usage"]])
    talk = (answer(Thinking(), Text(f"Answer {number}. " + "Some words of it. " * 40)) for number in range(turns))
    async with opened(bench.folder / "session", *talk, files={"a.py": _FILE}) as outside:
        session = _share([(await _said(outside, number))["usage"] for number in range(turns)])
    return [
        Figure("12", name, value=100 * share, value_unit=" %", least=85.0, is_gate=True, note="of the input tokens")
        for name, share in ((f"cache reads of {steps} steps", loop), (f"cache reads of {turns} turns", session))
    ]


async def _said(outside: Outside, number: int) -> dict[str, dict[str, int]]:
    more = {"sessionId": "last"} if number else {}
    prompt = f"Question {number}. " + "With some words to it. " * 20
    result: dict[str, dict[str, int]] = await outside.turn("thinklsp.chat", {"prompt": prompt} | more)
    return result


def _share(usages: list[dict[str, int]]) -> float:
    """Return the share of input tokens read from the cache. `inputTokens` includes them."""
    return sum(usage["cacheReadTokens"] for usage in usages) / sum(usage["inputTokens"] for usage in usages)


async def overhead(bench: Bench) -> list[Figure]:
    """Row 13: the time from the command to its answer, without the time that the service needs."""
    steps, count = (5, 60) if bench.quick else (20, 100)
    (bench.folder / "a.py").write_text(_FILE)

    def play(number: int, _: bytes) -> Play:
        step = number % steps
        if step == steps - 1:
            return Play(anthropic(("text", words(count))), _PACE)
        called = f'{{"path": "a.py", "start_line": {40 * step + 1}, "end_line": {40 * step + 40}}}'
        return Play(anthropic(("text", words(count)), ("read_file", [called])), _PACE)

    shares, lost = [], []
    with source(play) as service, served(bench.folder, service.url) as server:
        for number in range(-1, bench.some(3)):
            wall, own = timed_turn(server, service, number + 10, steps)
            # The first turn loads the modules of a turn.
            if number >= 0:
                lost.append(own)
                shares.append(100 * own / wall)
    share = sorted(shares)[len(shares) // 2]
    note = f"{sorted(lost)[len(lost) // 2] / steps:.1f} ms a step"
    name = f"own time in a turn of {steps} steps"
    return [Figure("13", name, "ms", lost, value=share, value_unit=" %", most=3.0, note=note)]


async def growth(bench: Bench) -> list[Figure]:
    """Row 13: the growth of the server's processor time over the steps of one session."""
    turns, steps = 8, 10 if bench.quick else 25
    (bench.folder / "a.py").write_text(_FILE)

    def play(number: int, _: bytes) -> Play:
        if number % steps == steps - 1:
            return Play(anthropic(("text", words(10))))
        line = 4 * (number % 200) + 1
        called = f'{{"path": "a.py", "start_line": {line}, "end_line": {line + 3}}}'
        return Play(anthropic(("text", words(10)), ("read_file", [called])))

    with source(play) as service, served(bench.folder, service.url) as server:
        timed_turn(server, service, 10, steps)
        base, spent = cpu_seconds(server.process.pid), []
        for number in range(turns):
            more = {"sessionId": "last"} if number else {}
            timed_turn(server, service, number + 11, steps, **more)
            spent.append(cpu_seconds(server.process.pid) - base)
    points = [turns * share // 8 for share in (1, 2, 4, 8)]
    grown = exponent(points, [spent[at - 1] for at in points])
    per_turn = turns // 8
    first, last = (
        seconds * 1000 / per_turn / steps for seconds in (spent[per_turn - 1], spent[-1] - spent[-per_turn - 1])
    )
    note = f"the first eighth {first:.1f}, the last {last:.1f} ms a step"
    name = f"CPU of {turns * steps} steps in one session"
    return [Figure("13", name, value=grown, value_unit=" (exponent)", most=1.05, note=note)]


async def applied(bench: Bench) -> list[Figure]:
    """Row 13: the time from the last byte of the last answer to the edit of one file, which is open in the editor."""

    def play(number: int, _: bytes) -> Play:
        if number % 3 == 0:
            return Play(anthropic(("read_file", ['{"path": "b.py"}'])), _PACE)
        if number % 3 == 1:
            edit = {"path": "b.py", "old_text": "value + 700\n", "new_text": "value + 7\n"}
            return Play(anthropic(("edit_file", [json.dumps(edit)])), _PACE)
        return Play(anthropic(("text", words(60))), _PACE)

    taken = []
    document = {"uri": (bench.folder / "b.py").as_uri(), "languageId": "python", "version": 1, "text": _FILE}
    with source(play) as service, served(bench.folder, service.url) as server:
        server.send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        for number in range(-1, max(bench.rounds, 7)):
            server.passed.clear()
            timed_turn(server, service, number + 10, 3)
            [at] = [at for at, message in server.passed if message["method"] == "workspace/applyEdit"]
            if number >= 0:
                taken.append((at - service.ended) * 1000)
    return [
        Figure(
            "13",
            "last byte of the answer to workspace/applyEdit",
            "ms",
            taken,
            value=statistics.median(taken),
            value_unit=" ms",
            most=5.0,
        )
    ]


_ENDPOINT = Endpoint("anthropic", "https://api.anthropic.com", "key")
_WORDS = "some words of an answer, and `code`\n" * 120


def _step(number: int) -> list[Message]:
    blocks = (thinking(f"signature {number} " * 20), text(_WORDS), call(f"toolu_{number}"))
    return [AssistantMessage(blocks, "tool_use"), UserMessage((result(f"toolu_{number}", _WORDS * 3),))]


async def body(bench: Bench) -> list[Figure]:
    """Measure the encoding of one more step by an adapter that has already encoded the long history before it."""
    steps = 20 if bench.quick else 120
    adapter = AnthropicAdapter()
    conversation: list[Message] = [UserMessage.from_text("Go.")]
    for number in range(steps):
        conversation += _step(number)
        encoded = adapter.encode(replace(PLAIN, conversation=tuple(conversation)), _ENDPOINT).body
    history = json.loads(encoded)

    def encode() -> float:
        conversation.extend(_step(len(conversation)))
        request = replace(PLAIN, conversation=tuple(conversation))
        return cpu_elapsed(lambda: adapter.encode(request, _ENDPOINT).body)

    def dump() -> float:
        return cpu_elapsed(lambda: json.dumps(history).encode())

    values, missing = await in_turn({"thinklsp": encode, "json.dumps": dump}, max(bench.rounds, 11))
    name = f"request body of step {steps} ({len(encoded) / 1e6:.1f} MB)"
    return compared("11", name, values, missing, {"json.dumps": 0.10})


async def session(bench: Bench) -> list[Figure]:
    """Measure the processor time of the server process by turn, including the store and the progress reports."""
    turns = 40 if bench.quick else 200
    with talking(60, 1e9) as url, served(bench.folder, url) as server:
        base, spent = 0.0, []
        # The first turns load modules, which is independent of the number of turns.
        for number in range(-3, turns):
            if number == 0:
                base = cpu_seconds(server.process.pid)
            more = {"sessionId": "last"} if number > -3 else {}
            server.ask(chat(number + 10, f"Prompt {number}. {_WORDS[:2_000]}", **more))
            server.passed.clear()
            if number >= 0:
                spent.append(cpu_seconds(server.process.pid) - base)
    points = [turns * share // 8 for share in (1, 2, 4, 8)]
    grown = exponent(points, [spent[at - 1] for at in points])
    tenth = turns // 10
    first, last = (seconds / tenth * 1000 for seconds in (spent[tenth - 1], spent[-1] - spent[-tenth - 1]))
    name = f"CPU of {turns} turns in one session"
    note = f"{spent[-1] * 1000:.0f} ms in all; the first tenth {first:.1f}, the last {last:.1f} ms a turn"
    value_unit = " (exponent)"
    return [Figure("11", name, value=grown, value_unit=value_unit, most=1.1, is_gate=not bench.quick, note=note)]
