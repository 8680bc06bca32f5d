"""Figures without a peer, for information: how fast an editor is served."""

from __future__ import annotations

import time

from tests.bench.measure import Bench, Figure
from tests.support.outside import diagnostic, start
from tests.support.raw_documents import range_of
from tests.support.signing_script import Hold, Text, Thinking, answer

LARGE = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(20_000))
_WORDS = "    some words of a long answer, and `code` – 🙂\n"
TALK = (_WORDS * 12 + "```python\n" + "x = compute(1, 2)\n" * 9 + "```\n\n") * 1_300


async def code_action(bench: Bench) -> list[Figure]:
    """Request to answer, with ten diagnostics. Includes the client's own cost."""
    outside = await start(bench.folder, files={"large.py": LARGE})
    try:
        uri = outside.open("large.py")
        problems = [diagnostic(LARGE, f"function_{number}(", "something is wrong") for number in range(10)]
        values = []
        for number in range(bench.rounds * 20):
            place = range_of(LARGE, f"function_{number}(")
            begun = time.perf_counter()
            await outside.client.code_actions(uri, place, diagnostics=problems)
            values.append((time.perf_counter() - begun) * 1000)
    finally:
        await outside.stop()
    return [Figure("editor", "code action, 80,000 lines, 10 diagnostics", "ms", values)]


async def chat_lenses(bench: Bench) -> list[Figure]:
    """Request to answer in a chat document that has just been changed."""
    outside = await start(bench.folder)
    try:
        await outside.client.command("thinklsp.effort", {})
        uri = outside.open("large.chat.md", f"## You\n\n{TALK}\n## You\n\nNow?")
        values = []
        for number in range(bench.rounds):
            outside.client.change(uri, "Now", f"Now {number}")
            begun = time.perf_counter()
            await outside.client.lenses(uri)
            values.append((time.perf_counter() - begun) * 1000)
    finally:
        await outside.stop()
    return [Figure("editor", "lenses of a changed chat document of 1 MB", "ms", values)]


async def begin_and_cancel(bench: Bench) -> list[Figure]:
    """From the command to the `begin` of its progress; from `$/cancelRequest` to the end of the connection."""
    holds = [Hold() for _ in range(bench.rounds)]
    outside = await start(bench.folder, *(answer(Thinking("…"), hold, Text("never")) for hold in holds))
    begins, cancels = [], []
    try:
        for number, hold in enumerate(holds):
            token = f"bench-{number}"
            begun = time.perf_counter()
            request = outside.client.command("thinklsp.chat", {"prompt": "Hello"}, token=token)
            await outside.client.wait_for(lambda token=token: outside.client.progress(token))
            begins.append((time.perf_counter() - begun) * 1000)
            await hold.reached.wait()
            cancelled, seen = time.monotonic(), outside.provider.requests[-1]
            outside.client.cancel(request)
            closed = await outside.provider.wait_for(lambda seen=seen: seen.closed_at)
            cancels.append((closed - cancelled) * 1000)
            await outside.client.wait_for(lambda request=request: request.answered)
    finally:
        await outside.stop()
    return [
        Figure("editor", "command to progress begin", "ms", begins),
        Figure("editor", "cancel to closed provider connection", "ms", cancels),
    ]
