"""The reader of standard input: what is there, what somebody else took, and the end.

`tests/lsp/slow/test_standard_input.py` plays a whole session on each kind of input.
"""

from __future__ import annotations

import asyncio
import os
import time

from thinklsp.jsonrpc.framing import BadFrame, LineReader
from thinklsp.jsonrpc.stdio import InputReader, read_available


def test_what_somebody_else_took_is_not_the_end() -> None:
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    assert read_available(theirs) is None
    os.write(ours, b"x")
    assert read_available(theirs) == b"x"
    os.close(ours)
    assert read_available(theirs) == b""
    os.close(theirs)
    assert read_available(theirs) == b""


async def test_flood_of_messages_leaves_turns_to_other_work() -> None:
    """Each message takes longer than a turn, so the end of the input arrives while messages wait."""
    seen: list[bytes | BadFrame | str] = []
    ended = asyncio.Event()

    def receive(frame: bytes | BadFrame) -> None:
        seen.append(frame)
        until = time.monotonic() + 0.06
        while time.monotonic() < until:
            pass

    def end() -> None:
        seen.append("end")
        ended.set()

    InputReader(LineReader(), receive, end).start(b"1\n2\n3\n")
    asyncio.get_running_loop().call_soon(seen.append, "other")
    await ended.wait()
    assert seen == [b"1", "other", b"2", b"3", "end"]
