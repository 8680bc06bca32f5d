"""The watch on the event loop, with which every test of a server ends: it finds what keeps the loop, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow.running import running
from tests.support.outside import server_with
from tests.support.signing_server import Text, answer
from tests.support.watching import seen

pytestmark = pytest.mark.timing
KEPT = {
    "a callback that computes": ("busy(20_000_000)", "the event loop was kept"),
    "a callback that waits": ("time.sleep(1.5)", "the event loop was kept"),
    "many callbacks at once": ("[loop.call_soon(busy, 20_000) for _ in range(4_000)]", "the event loop was kept"),
    "native code in a thread": ("threading.Thread(target=re.match, args=('(a+)+b', 'a' * 26)).start()", "was kept"),
}
FREE = {
    "callbacks one after the other": "again(1_000)",
    "Python in threads": "[threading.Thread(target=busy, args=(9 ** 7,)).start() for _ in range(3)]",
    "threads that wait": "threading.Thread(target=time.sleep, args=(1.5,)).start()",
}
PROGRAM = """
import asyncio, re, threading, time
from thinklsp.lsp.editor.client import Client
send_progress = Client.send_progress
def busy(count):
    all(n >= 0 for n in range(count))
def faulty(self, token, value):
    loop = asyncio.get_running_loop()
    def again(left):
        busy(20_000)
        left and loop.call_soon(again, left - 1)
    if not isinstance(value, dict) and value.kind == "end":
        {work}
    send_progress(self, token, value)
Client.send_progress = faulty
"""


async def held(place: Path, work: str, told: str = "") -> str:
    """Return the report of the watch. The server ends once it contains `told`."""
    async with running(
        place, answer(Text("Yes.")), connect=server_with(PROGRAM.format(work=work)), finish=False
    ) as outside:
        await outside.turn("thinklsp.chat", {"prompt": "Hello."})
        await seen(lambda: told in outside.held(), within=60)
        assert await outside.client.close() == 0
        return outside.held()


@pytest.mark.parametrize("kind", KEPT)
async def test_what_keeps_the_loop_is_found(tmp_path: Path, kind: str) -> None:
    work, told = KEPT[kind]
    assert told in await held(tmp_path, work, told)


@pytest.mark.parametrize("kind", FREE)
async def test_a_busy_loop_is_not_kept(tmp_path: Path, kind: str) -> None:
    assert await held(tmp_path, FREE[kind]) == ""
