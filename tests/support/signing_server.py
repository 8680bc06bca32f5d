"""A stand-in for the Anthropic Messages service that signs what it says and demands it back.

Plain sockets, own HTTP/1.1 and server-sent events; the script is Python values (`signing_script`), the demands are
`signing_rules`. A request that breaks one gets a 400 in Anthropic's form and is noted in `violations`. Everything that
came and when connections were closed is recorded. Shares no code with the product, its simulator included.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.support.other_hosts import Host
from tests.support.signing_rules import MODELS, Conversations, Issued, PromptCache, Refused, check_request
from tests.support.signing_script import Answer, Bare, Cut, Event, Failure, Hold, Signer
from tests.support.signing_wire import CutByScript, HttpWire
from tests.support.watching import Watched

Json = Any
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
        if (method, path) == ("POST", "/v1/messages/count_tokens"):
            use = PromptCache().use(json.loads(raw))
            await wire.json(200, {"input_tokens": use.rest + use.written})
        elif (method, path) != ("POST", "/v1/messages"):
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
        """Answers while looking for the moment in which the client closes."""
        stream = asyncio.create_task(answering)
        closed = asyncio.create_task(wire.closed())
        try:
            await asyncio.wait({stream, closed}, return_when=asyncio.FIRST_COMPLETED)
            if not stream.done() or _client_left(stream):
                seen.closed_at = time.monotonic()
                self.changed()
                raise ConnectionResetError("the client has closed")
            await stream
        finally:
            for task in (stream, closed):
                task.cancel()
            await asyncio.gather(stream, closed, return_exceptions=True)

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
        wire.cut_behind(script.cut_behind)
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


def _client_left(stream: asyncio.Task[None]) -> bool:
    """A write can fail before the end of the client's side is read."""
    broken = stream.exception()
    return isinstance(broken, ConnectionError) and not isinstance(broken, CutByScript)


def _wants_summaries(body: Json) -> bool:
    display = body.get("thinking", {}).get("display")
    return bool(display == "summarized" or (display is None and MODELS[body["model"]].shows_thinking))


def _error(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{secrets.token_hex(8)}"}
