"""A stand-in for the Anthropic Messages service that signs what it says and demands it back.

Plain sockets, own HTTP/1.1 and server-sent events; the script is Python values (`signing_script`), the demands are
`signing_rules`. A request that breaks one gets a 400 in Anthropic's form and is noted in `violations`. Everything that
came and when connections were closed is recorded. Shares no code with the product, its simulator included.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import secrets
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, assert_never

from tests.support.hosts import Host
from tests.support.signing_rules import MODELS, Conversations, Issued, PromptCache, Refused, check_request
from tests.support.watching import Watched

Json = Any


@dataclass(frozen=True)
class Thinking:
    """`text` reaches the client only if it asks for summaries (or the model shows them by itself)."""

    text: str = "I weigh it."


@dataclass(frozen=True)
class Redacted:
    pass


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Tool:
    """A tool call. `cut`: the JSON of the input stops half way, as at max_tokens. `id`: given as it is, as gateways do
    that repeat ids or give none; None: a new one. `letters`: size of one delta of its input."""

    name: str
    input: dict[str, Any]
    cut: bool = False
    id: str | None = None
    letters: int = 5


@dataclass(frozen=True)
class Raw:
    """A block of a kind that no client can know yet. It must come back as it is."""

    block: dict[str, Any]


class Hold:
    """The stream stands still here until `release`. `reached` tells that everything before is on the wire."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._go = asyncio.Event()

    def release(self) -> None:
        self._go.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._go.wait()


How = Literal["reset", "close", "end"]


@dataclass(frozen=True)
class Cut:
    """The connection breaks here: hard, in order, or (`end`) with an HTTP answer that looks whole."""

    how: How = "reset"


@dataclass(frozen=True)
class Event:
    """One server-sent event; `name` None is a comment line."""

    name: str | None
    data: Json

    def encode(self) -> bytes:
        if self.name is None:
            return f": {self.data}\n\n".encode()
        # Not ASCII-escaped: U+2028 and the like stand raw in the line, as they do on the real wire.
        return f"event: {self.name}\ndata: {json.dumps(self.data, ensure_ascii=False)}\n\n".encode()


# An event or bytes stand in the stream as they are and belong to no block.
Aside = Hold | Cut | Event | bytes
Item = Thinking | Redacted | Text | Tool | Raw | Aside


@dataclass(frozen=True)
class Answer:
    """`stop_reason` None: `tool_use` if a tool is called, else `end_turn`. `pace`: seconds between two events.

    `before`: held before even the head of the HTTP response is written. `letters`: size of one text delta.
    """

    items: tuple[Item, ...]
    stop_reason: str | None = None
    pace: float = 0.0
    before: Hold | None = None
    letters: int = 7

    @property
    def repeats_ids(self) -> bool:
        """Whether its calls come back under other ids, since these may not be unique."""
        return any(isinstance(item, Tool) and item.id is not None for item in self.items)

    @property
    def reason(self) -> str:
        calls = any(isinstance(item, Tool) for item in self.items)
        return self.stop_reason or ("tool_use" if calls else "end_turn")


def answer(*items: Item, stop_reason: str | None = None, **options: Any) -> Answer:
    return Answer(items, stop_reason, **options)


def tool(name: str, **arguments: Any) -> Tool:
    return Tool(name, arguments)


@dataclass(frozen=True)
class Failure:
    """An HTTP error instead of a stream. `of_thinking`: for all that the client can know, the service refuses the
    earlier thinking, so the client may leave it out (`Conversations.refuse`)."""

    status: int
    kind: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    of_thinking: bool = False


@dataclass(frozen=True)
class Bare:
    """What stands on the connection instead of an HTTP answer of ours, byte for byte; then it is closed."""

    pieces: Callable[[], Iterable[bytes | Hold]]


@dataclass
class Signer:
    """Makes the secrets of one run and remembers every one of them, for the search in `canary`."""

    issued: dict[str, str] = field(default_factory=dict)
    # Seeded, so that a failing run cuts the same pieces again.
    random: random.Random = field(default_factory=lambda: random.Random(20_261_120))

    def secret(self, kind: Literal["signature", "redacted"]) -> str:
        size = 150 if kind == "signature" else 90
        value = base64.b64encode(secrets.token_bytes(size)).decode()
        self.issued[f"{kind} {len(self.issued)}"] = value
        return value

    def stream(self, script: Answer, *, summaries: bool) -> Iterator[tuple[Aside, list[Json]]]:
        """Events and actions in order, each with the content that is complete by then."""
        content: list[Json] = []
        index = 0
        for item in script.items:
            if isinstance(item, Aside):
                yield item, content
                continue
            block = self._block(item, summaries=summaries)
            for event in self._block_events(index, block, item, script.letters):
                yield event, content
            if not (isinstance(item, Tool) and item.cut):
                content.append(block)  # A call that was cut has its stop event, but may not come back.
            yield Event("content_block_stop", {"type": "content_block_stop", "index": index}), content
            index += 1
            yield from ((event, content) for event in self._noise())

    def _block(self, item: Thinking | Redacted | Text | Tool | Raw, *, summaries: bool) -> Json:
        match item:
            case Thinking():
                shown = item.text if summaries else ""
                return {"type": "thinking", "thinking": shown, "signature": self.secret("signature")}
            case Redacted():
                return {"type": "redacted_thinking", "data": self.secret("redacted")}
            case Text():
                return {"type": "text", "text": item.text, "citations": None}
            case Tool():
                name = f"toolu_{secrets.token_hex(12)}" if item.id is None else item.id
                caller = {"type": "direct"}
                return {"type": "tool_use", "id": name, "name": item.name, "input": item.input, "caller": caller}
            case Raw():
                return item.block
            case _:
                assert_never(item)

    def _block_events(self, index: int, block: Json, item: Item, letters: int) -> Iterator[Event]:
        start, deltas = dict(block), list[Json]()
        match block["type"]:
            case "thinking":
                start |= {"thinking": "", "signature": ""}
                pieces = self._pieces(block["thinking"], letters) or [""]
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "text":
                start["text"] = ""
                deltas = [{"type": "text_delta", "text": p} for p in self._pieces(block["text"], letters)]
            case "tool_use":
                start["input"] = {}
                written = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
                if isinstance(item, Tool) and item.cut:
                    written = written[: len(written) // 2]
                pieces = ["", *self._pieces(written, item.letters if isinstance(item, Tool) else 5)]
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            case _:
                pass  # Complete in its start event.
        yield Event("content_block_start", {"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield Event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})

    def _pieces(self, text: str, letters: int) -> list[str]:
        pieces = []
        while text:
            size = self.random.randint(1, 2 * letters - 1)
            pieces.append(text[:size])
            text = text[size:]
        return pieces

    def _noise(self) -> Sequence[Event]:
        """What every reader of such a stream has to live with."""
        return [
            Event("ping", {"type": "ping"}),
            Event(None, "keep-alive"),
            Event("weather_report", {"type": "weather_report", "sky": "clear\u2028still"}),
        ][: self.random.randint(0, 3)]


EVENT_STREAM: Mapping[str, str] = MappingProxyType({"content-type": "text/event-stream; charset=utf-8"})


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {text}" for name, text in headers.items())]
    return "\r\n".join((*lines, "", "")).encode("latin-1")


class CutByScript(ConnectionError):
    """We hung up, not the client."""


class ClientLeft(ConnectionError):
    """The client hung up, not we."""


class HttpWire:
    """HTTP/1.1 on one connection. What arrives while an answer is streamed is kept for the next request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = bytearray()
        # Seeded, so that a failing run cuts the same pieces again.
        self._cuts = random.Random(20_261_120)

    async def read_request(self) -> tuple[str, dict[str, str], bytes] | None:
        head = await self._until(b"\r\n\r\n")
        if head is None:
            return None
        line, *rest = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (item.partition(":") for item in rest)}
        return line, headers, await self._body(headers)

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", ""):
            return await self._exactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(await self._until(b"\r\n") or b"0", 16):
            body += await self._exactly(size)
            await self._until(b"\r\n")
        await self._until(b"\r\n")
        return body

    async def _until(self, mark: bytes) -> bytes | None:
        while mark not in self._buffer:
            if not await self._fill():
                return None
        found, _, rest = bytes(self._buffer).partition(mark)
        self._buffer[:] = rest
        return found

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not await self._fill():
                raise ConnectionResetError("the request ended early")
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        return body

    async def _fill(self) -> bool:
        chunk = await self._reader.read(65536)
        self._buffer += chunk
        return bool(chunk)

    async def closed(self) -> None:
        """Returns when the client has closed its side."""
        with suppress(ConnectionError):
            while await self._fill():
                pass

    async def answer(self, answering: Coroutine[Any, Any, None]) -> None:
        """Answer while looking for the moment in which the client closes. Raises ClientLeft then."""
        stream, closed = asyncio.create_task(answering), asyncio.create_task(self.closed())
        try:
            await asyncio.wait({stream, closed}, return_when=asyncio.FIRST_COMPLETED)
            # A write can fail before the end of the client's side is read.
            broken = stream.exception() if stream.done() else None
            if not stream.done() or (isinstance(broken, ConnectionError) and not isinstance(broken, CutByScript)):
                raise ClientLeft("the client has closed")
            await stream
        finally:
            for task in (stream, closed):
                task.cancel()
            await asyncio.gather(stream, closed, return_exceptions=True)

    async def json(self, status: int, value: Json, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        await self.whole(status, {"content-type": "application/json", **headers}, json.dumps(value).encode())

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        await self.put(_head(status, {**headers, "content-length": str(len(body))}) + body)

    async def put(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def begin_stream(self, headers: Mapping[str, str] = EVENT_STREAM) -> None:
        await self.put(_head(200, {**headers, "transfer-encoding": "chunked"}))

    async def chunk(self, piece: bytes) -> None:
        await self.put(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def event(self, event: Event, pace: float) -> None:
        await self.pieces(event.encode())
        if pace:
            await asyncio.sleep(pace)

    async def pieces(self, written: bytes) -> None:
        """In up to three chunks, cut anywhere, characters included."""
        cuts = sorted(self._cuts.randrange(len(written)) for _ in range(2))
        for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
            if piece := written[start:end]:
                await self.chunk(piece)

    async def end_stream(self) -> None:
        await self.put(b"0\r\n\r\n")

    def cut(self, how: How) -> None:
        """Breaks the connection, or ends the answer as if it were whole."""
        match how:
            case "reset":
                self._writer.transport.abort()
            case "close":
                self._writer.close()
            case "end":
                self._writer.write(b"0\r\n\r\n")
                self._writer.close()
        raise CutByScript


Script = Answer | Bare | Failure | Callable[[Json], Answer | Failure]


@dataclass
class Seen:
    """One request for a message. `closed_at`: when the client closed before the answer was whole (monotonic)."""

    body: Json
    headers: dict[str, str]
    at: float
    status: int = 200
    usage: dict[str, int] = field(default_factory=dict)
    finished: bool = False
    closed_at: float | None = None

    def tool_results(self) -> list[Json]:
        """The results in the last message."""
        content = self.body["messages"][-1]["content"]
        return [b for b in content if b["type"] == "tool_result"] if isinstance(content, list) else []


class SigningServer(Watched, Host):
    """`async with SigningServer(key, *answers) as provider:`; answers are given in the order of the requests.

    `host`: the name, with its port, under which clients find it where that is not the address.
    """

    def __init__(
        self, key: str, *script: Script, bearer: bool = False, tls: ssl.SSLContext | None = None, host: str = ""
    ) -> None:
        super().__init__()
        self.key = key
        self.script = list(script)
        self.bearer = bearer
        self.tls = tls
        self.host = host
        self.requests: list[Seen] = []
        self.violations: list[str] = []
        self.signer = Signer()
        self.cache = PromptCache()
        self.conversations = Conversations()

    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_API_KEY": self.key, "ANTHROPIC_BASE_URL": self.url}

    def secrets(self) -> dict[str, str]:
        """What must not be seen anywhere but in the store and on this wire."""
        return self.signer.issued | {"api key": self.key}

    def say(self, *script: Script) -> None:
        self.script += script

    async def asked(self, number: int) -> Seen:
        """The request by number, from 1, once it has come."""
        await self.wait_for(lambda: len(self.requests) >= number, what=f"request {number} of the provider")
        return self.requests[number - 1]

    def describe(self) -> str:
        seen = [f"{r.status} finished={r.finished} messages={len(r.body['messages'])}" for r in self.requests]
        return "\n".join([f"provider saw {len(seen)} requests:", *seen, *self.violations])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.changed()
        wire = HttpWire(reader, writer)
        try:
            while (request := await wire.read_request()) is not None:
                await self._serve(wire, *request)
        except (ValueError, KeyError, TypeError) as unreadable:
            self.violations.append(f"a request that cannot be read: {unreadable!r}")

    async def _serve(self, wire: HttpWire, line: str, headers: dict[str, str], raw: bytes) -> None:
        method, target, _ = line.split(" ")
        path = target.partition("?")[0]
        if (method, path) != ("POST", "/v1/messages"):
            await wire.json(404, _error("not_found_error", f"{method} {path}"))
        else:
            await self._message(wire, Seen(json.loads(raw), headers, time.monotonic()))

    async def _message(self, wire: HttpWire, seen: Seen) -> None:
        self.requests.append(seen)
        self.changed()
        scripted = self.script.pop(0) if self.script else None
        refusal = None if isinstance(scripted, Failure) else self._refusal(seen)
        if refusal is None and callable(scripted):
            scripted = scripted(seen.body)
        if isinstance(scripted, Failure):
            seen.status = scripted.status
            if scripted.of_thinking:
                self.conversations.refuse(seen.body)
            await wire.json(scripted.status, _error(scripted.kind, scripted.message), scripted.headers)
            return
        if refusal is None and isinstance(scripted, Bare):
            await self._watched(wire, seen, self._bare(wire, scripted))
            return
        if refusal is None and isinstance(scripted, Answer):
            await self._watched(wire, seen, self._stream(wire, seen, scripted))
            return
        sentence = refusal or "the script has no answer left for this request"
        seen.status = 400
        self.violations.append(f"request {len(self.requests)}: {sentence}")
        self.changed()
        await wire.json(400, _error("invalid_request_error", sentence))

    def _refusal(self, seen: Seen) -> str | None:
        try:
            check_request(seen.body, seen.headers, self.key, bearer=self.bearer)
            self.conversations.check(seen.body)
        except Refused as refused:
            return str(refused)
        return None

    async def _watched(self, wire: HttpWire, seen: Seen, answering: Coroutine[Any, Any, None]) -> None:
        try:
            await wire.answer(answering)
        except ClientLeft:
            seen.closed_at = time.monotonic()
            self.changed()
            raise

    async def _bare(self, wire: HttpWire, script: Bare) -> None:
        for piece in script.pieces():
            if isinstance(piece, Hold):
                await piece.wait()
            else:
                await wire.put(piece)
        wire.cut("close")

    async def _stream(self, wire: HttpWire, seen: Seen, script: Answer) -> None:
        if script.before is not None:
            await script.before.wait()
        issued = Issued(seen.body, [], script.reason, renames=script.repeats_ids)
        self.conversations.issued.append(issued)
        await wire.begin_stream()
        await wire.event(self._message_start(seen), script.pace)
        for step, content in self.signer.stream(script, summaries=_wants_summaries(seen.body)):
            issued.content = content
            match step:
                case Hold():
                    await step.wait()
                case Cut():
                    wire.cut(step.how)
                case bytes():
                    await wire.pieces(step)
                case Event():
                    await wire.event(step, script.pace)
        for event in self._message_end(seen, script.reason, issued.content):
            await wire.event(event, script.pace)
        issued.complete = seen.finished = True
        await wire.end_stream()
        self.changed()

    def _message_start(self, seen: Seen) -> Event:
        use = self.cache.use(seen.body)
        cached = {"cache_read_input_tokens": use.read, "cache_creation_input_tokens": use.written}
        seen.usage = {"input_tokens": use.rest, **cached, "output_tokens": 1}
        message = {
            "id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "model": seen.body["model"],
            "content": [], "stop_reason": None, "stop_sequence": None, "usage": dict(seen.usage),
        }  # fmt: skip
        return Event("message_start", {"type": "message_start", "message": message})

    def _message_end(self, seen: Seen, reason: str, content: list[Json]) -> list[Event]:
        """Two deltas: usage is cumulative, and figures that the second leaves out stay."""
        thinking = sum(50 for block in content if block["type"].endswith("thinking"))
        seen.usage["output_tokens"] = thinking + sum(len(json.dumps(block)) // 40 + 1 for block in content)
        seen.usage["thinking_tokens"] = thinking
        first = {"output_tokens": 1, "output_tokens_details": {"thinking_tokens": thinking}}
        second = {"output_tokens": seen.usage["output_tokens"]}
        return [
            Event("message_delta", {"type": "message_delta", "delta": {}, "usage": first}),
            Event("message_delta", {
                "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": second,
            }),
            Event("message_stop", {"type": "message_stop"}),
        ]  # fmt: skip


def _wants_summaries(body: Json) -> bool:
    display = body.get("thinking", {}).get("display")
    return bool(display == "summarized" or (display is None and MODELS[body["model"]].shows_thinking))


def _error(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{secrets.token_hex(8)}"}


Json = Any
