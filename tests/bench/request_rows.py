"""Row 11: what history costs: the body of a late turn, and the whole server over a long session."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from tests.bench.latency_rows import chat, served, talking
from tests.bench.measure import Bench, Figure, compared, cpu_seconds, exponent, in_turn
from tests.support.anthropic_requests import PLAIN, call, result, text, thinking
from thinklsp.core.messages import AssistantMessage, Message, UserMessage
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import Endpoint

_ENDPOINT = Endpoint("anthropic", "https://api.anthropic.com", "key")
_SENT = 64 * 1024
_WORDS = "some words of an answer, and `code`\n" * 120


def _step(number: int) -> list[Message]:
    blocks = (thinking(f"signature {number} " * 20), text(_WORDS), call(f"toolu_{number}"))
    return [AssistantMessage(blocks, "tool_use"), UserMessage((result(f"toolu_{number}", _WORDS * 3),))]


async def body(bench: Bench) -> list[Figure]:
    """One step more at the end of a long history, by an adapter that has sent what was before, until it could be given
    to the network."""
    steps = 20 if bench.quick else 120
    adapter = AnthropicAdapter()
    conversation: list[Message] = [UserMessage.of("Go.")]
    for number in range(steps):
        conversation += _step(number)
        encoded = bytes(adapter.encode(replace(PLAIN, conversation=tuple(conversation)), _ENDPOINT).body)
    history = json.loads(encoded)

    def encode() -> float:
        conversation.extend(_step(len(conversation)))
        request = replace(PLAIN, conversation=tuple(conversation))
        begun = time.process_time()
        for _ in adapter.encode(request, _ENDPOINT).body.parts(_SENT):
            pass
        return (time.process_time() - begun) * 1000

    def dump() -> float:
        begun = time.process_time()
        json.dumps(history).encode()
        return (time.process_time() - begun) * 1000

    values, missing = await in_turn({"thinklsp": encode, "json.dumps": dump}, max(bench.rounds, 11))
    name = f"request body of step {steps} ({len(encoded) / 1e6:.1f} MB)"
    return compared("11", name, values, missing, {"json.dumps": 0.10})


async def session(bench: Bench) -> list[Figure]:
    """Processor time of the server process, turn by turn, storing and reporting included."""
    turns = 40 if bench.quick else 200
    with talking(60, 1e9) as url, served(bench.folder, url) as server:
        base, spent = 0.0, []
        # What is loaded with the first turns is no cost of their number.
        for number in range(-3, turns):
            if number == 0:
                base = cpu_seconds(server.process.pid)
            more = {"sessionId": "last"} if number > -3 else {}
            server.send(chat(number + 10, f"Prompt {number}. {_WORDS[:2_000]}", **more))
            answer = server.receive(number + 10)
            assert "result" in answer, answer
            server.passed.clear()
            if number >= 0:
                spent.append(cpu_seconds(server.process.pid) - base)
    bench.series["session"] = {"thinklsp": [seconds * 1000 for seconds in spent]}
    points = [turns * share // 8 for share in (1, 2, 4, 8)]
    grown = exponent(points, [spent[at - 1] for at in points])
    tenth = turns // 10
    first, last = (seconds / tenth * 1000 for seconds in (spent[tenth - 1], spent[-1] - spent[-tenth - 1]))
    name = f"CPU of {turns} turns in one session"
    note = f"{spent[-1] * 1000:.0f} ms in all; the first tenth {first:.1f}, the last {last:.1f} ms a turn"
    value_unit = " (exponent)"
    return [Figure("11", name, value=grown, value_unit=value_unit, most=1.1, is_gate=not bench.quick, note=note)]
