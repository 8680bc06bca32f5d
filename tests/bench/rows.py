"""The figures. Each row is given a folder and a number of rounds and returns its values in the unit of its name."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.bench import shadow_rows, store_rows
from tests.support.outside import Outside, diagnostic, start
from tests.support.raw_client import RawClient
from tests.support.raw_documents import range_of
from tests.support.signing_script import Hold, Text, Thinking, answer, tool

BARE = """
from lsprotocol import types
from pygls.lsp.server import LanguageServer
server = LanguageServer("bare", "1")
@server.feature(types.TEXT_DOCUMENT_HOVER)
def hover(params):
    return None
server.start_io()
"""
LARGE = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(20_000))

_WORDS = "    some words of a long answer, and `code` – 🙂\n"
TALK = (_WORDS * 12 + "```python\n" + "x = compute(1, 2)\n" * 9 + "```\n\n") * 1_300


async def initialize_ratio(folder: Path, rounds: int) -> list[float]:
    """A B A B: a bare pygls server and ours, from the spawn to the answer of `initialize`."""
    script = folder / "bare.py"
    script.write_text(BARE)
    values = []
    for number in range(rounds):
        bare = await _initialized([sys.executable, str(script)], folder)
        begun = time.perf_counter()
        outside = await start(folder / str(number))
        ours = time.perf_counter() - begun
        await outside.stop()
        values.append(ours / bare)
    return values


async def _initialized(argv: list[str], folder: Path) -> float:
    begun = time.perf_counter()
    client = await RawClient.start(argv, cwd=folder, env={"PATH": ""})
    await client.initialize(folder)
    taken = time.perf_counter() - begun
    client.process.kill()
    await client.gone()
    return taken


async def code_action(folder: Path, rounds: int) -> list[float]:
    """Request to answer, in a document of 80,000 lines, with ten diagnostics. Includes the client's own cost."""
    outside = await start(folder, files={"large.py": LARGE})
    try:
        uri = outside.open("large.py")
        problems = [diagnostic(LARGE, f"function_{number}(", "something is wrong") for number in range(10)]
        values = []
        for number in range(rounds * 20):
            place = range_of(LARGE, f"function_{number}(")
            begun = time.perf_counter()
            await outside.client.code_actions(uri, place, diagnostics=problems)
            values.append((time.perf_counter() - begun) * 1000)
        return values
    finally:
        await outside.stop()


async def chat_lenses(folder: Path, rounds: int) -> list[float]:
    """Request to answer in a chat document of 1 MB that has just been changed. Includes the client's own cost."""
    outside = await start(folder)
    try:
        await _warm(outside)
        uri = outside.open("large.chat.md", f"## You\n\n{TALK}\n## You\n\nNow?")
        values = []
        for number in range(rounds):
            outside.client.change(uri, "Now", f"Now {number}")
            begun = time.perf_counter()
            await outside.client.lenses(uri)
            values.append((time.perf_counter() - begun) * 1000)
        return values
    finally:
        await outside.stop()


async def begin_after_command(folder: Path, rounds: int) -> list[float]:
    """From the command to the `begin` of its progress."""
    values = []
    outside = await start(folder, *([answer(Text("ok"))] * rounds), files={"a.py": "x = 1\n"})
    try:
        for number in range(rounds):
            token = f"bench-{number}"
            begun = time.perf_counter()
            request = outside.client.command("thinklsp.chat", {"prompt": "Hello"}, token=token)
            await outside.client.wait_for(lambda token=token: outside.client.progress(token))
            values.append((time.perf_counter() - begun) * 1000)
            await request
        return values
    finally:
        await outside.stop()


async def cancel_to_close(folder: Path, rounds: int) -> list[float]:
    """From `$/cancelRequest` to the end of the provider's connection."""
    values = []
    holds = [Hold() for _ in range(rounds)]
    outside = await start(folder, *(answer(Thinking("…"), hold, Text("never")) for hold in holds))
    try:
        for hold in holds:
            request = outside.client.command("thinklsp.chat", {"prompt": "Hello"}, token=outside.token())
            await hold.reached.wait()
            begun, seen = time.monotonic(), outside.provider.requests[-1]
            outside.client.cancel(request)
            closed = await outside.provider.wait_for(lambda seen=seen: seen.closed_at)
            values.append((closed - begun) * 1000)
            await _settled(request)
        return values
    finally:
        await outside.stop()


async def _settled(request: Awaitable[object]) -> None:
    try:
        await request
    except Exception:  # noqa: BLE001 - the cancelled request answers with an error, which is what it should do
        return


async def overhead(folder: Path, rounds: int) -> list[float]:
    """A turn of twenty steps against a provider that answers at once: everything in it is our own time and its."""
    values = []
    for number in range(max(1, rounds // 3)):
        steps = [answer(tool("read_file", path="a.py", start_line=n + 1, end_line=n + 2)) for n in range(19)]
        outside = await start(folder / str(number), *steps, answer(Text("done")), files={"a.py": LARGE[:40_000]})
        try:
            await _warm(outside)
            begun = time.perf_counter()
            await outside.turn("thinklsp.chat", {"prompt": "Twenty steps."})
            values.append((time.perf_counter() - begun) * 1000)
        finally:
            await outside.stop()
    return values


async def _warm(outside: Outside) -> None:
    """The engine is loaded once it has answered a command that needs it."""
    await outside.client.command("thinklsp.effort", {})


ROWS: dict[str, Callable[[Path, int], Awaitable[list[float]]]] = {
    "spawn to initialize, against bare pygls (ratio)": initialize_ratio,
    "code action, 80,000 lines, 10 diagnostics (ms)": code_action,
    "lenses of a changed chat document of 1 MB (ms)": chat_lenses,
    "command to progress begin (ms)": begin_after_command,
    "cancel to closed provider connection (ms)": cancel_to_close,
    "turn of 20 steps, provider answers at once (ms)": overhead,
    "list of 200 sessions, one of 50 MB (ms)": store_rows.list_sessions,
    "resume of 10,000 messages, 50 MB (ms)": store_rows.resume,
    "append to 10,000 messages, 50 MB (ms)": store_rows.append,
    **shadow_rows.ROWS,
}
