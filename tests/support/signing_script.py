"""The words in which a test scripts the signing server: what the model says, and what happens to the stream.

An `Answer` is a list of blocks and stream actions. `Signer` turns it into server-sent events as the Anthropic Messages
service writes them (providers' public documentation), in odd pieces, and into the content that it demands back.
Shares no code with the product.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

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
    `cut_behind`: the connection breaks behind so many bytes of the HTTP answer.
    """

    items: tuple[Item, ...]
    stop_reason: str | None = None
    pace: float = 0.0
    before: Hold | None = None
    letters: int = 7
    cut_behind: int | None = None

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
