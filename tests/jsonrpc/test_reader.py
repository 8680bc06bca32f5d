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
    seen: list[bytes | BadFrame | str] = []
    ended = asyncio.Event()

    def receive(frame: bytes | BadFrame) -> None:
        seen.append(frame)
        until = time.monotonic() + 0.03
        while time.monotonic() < until:
            pass

    InputReader(LineReader(), receive, ended.set).start(b"1\n2\n3\n4\n")
    asyncio.get_running_loop().call_soon(seen.append, "other")
    await ended.wait()
    assert [frame for frame in seen if frame != "other"] == [b"1", b"2", b"3", b"4"]
    assert seen.index("other") < seen.index(b"4")
