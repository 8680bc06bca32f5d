"""The transport between the MCP SDK and a server process, with limits on everything that the server sends.

This module imports the SDK, so only `sdk_session` imports it, in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import anyio
from anyio.abc import ObjectSendStream
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from thinklsp.jsonrpc.framing import BadFrame, LineReader
from thinklsp.mcp_client.guarded_process import ServerCommand, ServerProcess
from thinklsp.mcp_client.message_limits import MAX_LINE_BYTES, BadMessage, MessageFilter, parse_message

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], "_Outbox"]

_MAX_WAITING = 100
# The time for which the SDK may leave the messages waiting.
_WAIT_SECONDS = 5.0
# The event loop can do other work after this many lines. A chunk may contain thousands.
_LINES_AT_ONCE = 200
# Longer than the longest line.
_MAX_EMPTY_BYTES = 8 * 1024 * 1024
# Lines up to this length are parsed on the event loop, which takes at most 2 ms.
_MAX_INLINE_BYTES = 64 * 1024


class StdioTransport(AbstractAsyncContextManager[Streams]):
    """A transport in the sense of the SDK. It starts the server when it is entered and ends it when it is left.

    `ended` is set as soon as the server has exited or was found to be faulty. `failure` is then the end of a sentence
    about the server, or empty if thinklsp ended the connection. `on_list_change` is called for each change of the list
    of tools, which the SDK does not receive.
    """

    def __init__(self, command: ServerCommand, on_list_change: Callable[[], None]) -> None:
        self.ended = asyncio.Event()
        self.failure = ""
        self._is_faulty = False
        self.unreadable_lines = 0
        self._command = command
        self._process = ServerProcess()
        self.on_list_change = on_list_change
        self._filter = MessageFilter(asyncio.get_running_loop().time, on_list_change)
        self._inbox, self._received = anyio.create_memory_object_stream[SessionMessage | Exception](_MAX_WAITING)
        self._outbox = _Outbox(self._filter, self._fail)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Streams:
        try:
            await self._process.start(self._command)
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror}")
        else:
            self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        return self._received, self._outbox

    async def __aexit__(self, *error: object) -> None:
        self._fail("")
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            self._inbox.close()
            self._received.close()
            await self._process.aclose(is_faulty=self._is_faulty)

    @property
    def stderr_tail(self) -> str:
        return self._process.stderr_tail

    @property
    def server_pid(self) -> int | None:
        return self._process.server_pid

    def _fail(self, reason: str) -> None:
        """Note the first reason for which the connection ends, and let the SDK see the end of the input."""
        if not self.ended.is_set():
            self.failure = reason
            self.ended.set()
            self._outbox.close()
            self._inbox.close()

    async def _read(self) -> None:
        reader = LineReader(MAX_LINE_BYTES)
        bytes_without_message = 0
        try:
            while data := await self._process.read():
                bytes_without_message += len(data)
                for number, frame in enumerate(reader.feed(data)):
                    bytes_without_message = 0
                    await self._receive_line(frame)
                    if number % _LINES_AT_ONCE == 0:
                        await asyncio.sleep(0)
                if bytes_without_message > _MAX_EMPTY_BYTES:
                    self._is_faulty = True
                    self._fail("sends empty lines without an end")
                    return
                # A server that sends without a pause must not keep the event loop from other work.
                await asyncio.sleep(0)
            self._fail(await self._process.explain_exit())
        except BadMessage as problem:
            self._is_faulty = True
            self._fail(str(problem))
        except OSError as error:
            self._fail(f"can no longer be read: {error.strerror}")

    async def _receive_line(self, line: bytes | BadFrame) -> None:
        if isinstance(line, BadFrame):
            raise BadMessage(f"sent a line longer than {MAX_LINE_BYTES // 1024**2} MiB")
        if len(line) > _MAX_INLINE_BYTES:
            message = await asyncio.to_thread(parse_message, line)
        else:
            message = parse_message(line)
        if message is None:
            self.unreadable_lines += 1
        if self._filter.should_pass(message) and message is not None:
            await self._deliver(message)

    async def _deliver(self, message: dict[str, Any]) -> None:
        try:
            item = SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False))
        except ValidationError:
            self.unreadable_lines += 1
            return
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._inbox.send(item)
        except TimeoutError:
            raise BadMessage(f"sent more than {_MAX_WAITING} messages that could not be handled in time") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # The SDK has closed its side, because the connection ends.
            return

    async def _write(self) -> None:
        with suppress(ConnectionError):
            while True:
                await self._process.write(await self._outbox.take())


class _Outbox(ObjectSendStream[SessionMessage]):
    """The stream to which the SDK writes. It never blocks, because the SDK shields some writes from cancellation."""

    def __init__(self, message_filter: MessageFilter, on_failure: Callable[[str], None]) -> None:
        self._filter = message_filter
        self._on_failure = on_failure
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._is_closed = False

    async def send(self, item: SessionMessage) -> None:
        if self._is_closed:
            raise anyio.ClosedResourceError
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._filter.note_request(message.id)
        self._lines.put_nowait(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        if self._lines.qsize() > _MAX_WAITING:
            self._on_failure(f"does not read its input: {_MAX_WAITING} messages are waiting")

    async def take(self) -> bytes:
        """Wait for the next line to write."""
        return await self._lines.get()

    def close(self) -> None:
        self._is_closed = True

    async def aclose(self) -> None:
        self.close()
