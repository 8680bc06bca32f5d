"""A service that streams steadily: so many events, one after so many milliseconds, in a process of its own.

What a request is answered with stands in its newest `[events every milliseconds]`; the nth event says `n `. It signs
nothing and demands nothing, so that it can serve many streams without being what is measured. Shares no code with the
product.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from pathlib import Path
from typing import Any, Self

from tests.support.signing_server import Event, HttpWire

Json = Any
_ROOT = Path(__file__).parents[2]
_ASKED = re.compile(r"\[(\d+) every (\d+)\]")


def asking(events: int, milliseconds: int) -> str:
    """The prompt that asks for it."""
    return f"Stream [{events} every {milliseconds}]."


def streamed(events: int) -> str:
    """What the answer says then."""
    return "".join(f"{number} " for number in range(events))


class SteadyProvider:
    """For `outside.start`."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._key = f"sk-ant-canary-{secrets.token_hex(24)}"
        self._port = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.slow.steady_provider",
            cwd=_ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(_ROOT)},
        )  # fmt: skip
        assert self._process.stdout is not None
        self._port = int(await self._process.stdout.readline())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_API_KEY": self._key, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self._port}"}

    def secrets(self) -> dict[str, str]:
        return {"api key": self._key}


async def _connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    wire = HttpWire(reader, writer)
    try:
        while (request := await wire.read_request()) is not None:
            line, _, raw = request
            if "count_tokens" in line:
                await wire.json(200, {"input_tokens": len(raw) // 4})
            else:
                await _stream(wire, json.loads(raw))
    except (ConnectionError, asyncio.CancelledError):
        pass  # The client went, or the test is over.
    finally:
        writer.close()


async def _stream(wire: HttpWire, body: Json) -> None:
    events, milliseconds = map(int, _ASKED.findall(json.dumps(body["messages"]))[-1])
    usage = {"input_tokens": len(json.dumps(body)) // 4, "output_tokens": 1}
    message = {
        "id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "model": body["model"],
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    await wire.begin_stream()
    await _put(wire, "message_start", message=message)
    await _put(wire, "content_block_start", index=0, content_block={"type": "text", "text": ""})
    clock = asyncio.get_running_loop().time
    begun = clock()
    for number in range(events):
        await asyncio.sleep(begun + number * milliseconds / 1000 - clock())
        await _put(wire, "content_block_delta", index=0, delta={"type": "text_delta", "text": f"{number} "})
    await _put(wire, "content_block_stop", index=0)
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    await _put(wire, "message_delta", delta=ended, usage={"output_tokens": events})
    await _put(wire, "message_stop")
    await wire.end_stream()


async def _put(wire: HttpWire, kind: str, **data: Json) -> None:
    written = Event(kind, {"type": kind, **data}).encode()
    await wire.put(b"%x\r\n%b\r\n" % (len(written), written))


async def _serve() -> None:
    server = await asyncio.start_server(_connected, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    # Until the test is over, however that came.
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve())
