"""What the samples of the four services have in common: recorded streams, tools, messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    OpaqueState,
    Origin,
    StopReason,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    UserMessage,
)
from thinklsp.core.stream_events import (
    BlockDelta,
    MessageAccumulator,
    MessageFinished,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)
from thinklsp.core.usage import Usage
from thinklsp.http.sse import SseDecoder
from thinklsp.providers.base import Adapter, Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalogue import ModelInfo

TOOLS = (
    ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("list_files", "Lists files.", {"type": "object", "properties": {}}),
)


@dataclass(frozen=True)
class Answer:
    """The outcome of a stream. `unmatched`: how many deltas belong to no block."""

    message: AssistantMessage
    usage: Usage
    end: MessageFinished
    events: tuple[StreamEvent, ...]
    unmatched: int

    @property
    def explanation(self) -> str | None:
        return self.end.explanation

    @property
    def notices(self) -> tuple[str, ...]:
        return self.end.notices

    @property
    def shown(self) -> dict[int, str]:
        """What the reader was given while the stream ran, texts and thinking by block."""
        texts: dict[int, str] = {}
        for event in self.events:
            if isinstance(event, BlockDelta) and isinstance(event.delta, TextDelta | ThinkingDelta):
                texts[event.index] = texts.get(event.index, "") + event.delta.text
        return texts


def read_events(events: Iterable[StreamEvent], origin: Origin) -> Answer:
    accumulator, taken = MessageAccumulator(origin), list[StreamEvent]()
    for event in events:
        accumulator.apply(event)
        taken.append(event)
    [end] = [event for event in taken if isinstance(event, MessageFinished)]
    return Answer(accumulator.build_message(), accumulator.usage, end, tuple(taken), accumulator.unmatched.total())


def read_stream(adapter: Adapter, data: bytes | Iterable[bytes], origin: Origin) -> Answer:
    """Return the outcome of a stream, whole or in pieces. Raises what decoder and accumulator raise."""
    sse, decoder = SseDecoder(), adapter.create_decoder()

    def decode() -> Iterator[StreamEvent]:
        for piece in [data] if isinstance(data, bytes) else data:
            for sent in sse.feed(piece):
                yield from decoder.feed(sent.event, sent.data)
        for sent in sse.finish():
            yield from decoder.feed(sent.event, sent.data)
        yield from decoder.finish()

    return read_events(decode(), origin)


@dataclass(frozen=True)
class Recorded:
    """The streams of one service below `tests/fixtures`, each with what comes of it."""

    service: str
    endpoint: Endpoint
    model: str

    @property
    def origin(self) -> Origin:
        return self.endpoint.build_origin(self.model)

    @property
    def folder(self) -> Path:
        return Path(__file__).parents[1] / "fixtures" / self.service

    def cases(self, *, failing: bool) -> list[str]:
        names = [path.stem for path in sorted(self.folder.glob("*.json"))]
        return [name for name in names if ("error" in self.expected(name)) is failing]

    def expected(self, case: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / f"{case}.json").read_text("utf-8")))

    def stream(self, case: str) -> bytes:
        return (self.folder / f"{case}.sse").read_bytes()

    def raw(self, block: ContentBlock, origin: Origin | None = None) -> dict[str, Any]:
        """The block as it came. Of one that is nothing but its text, no more than that is kept."""
        if isinstance(block, TextBlock) and block.raw is None:
            return {"type": "text", "text": block.text}
        assert block.raw is not None
        return dict(json.loads(block.raw.reveal_for(origin or self.origin)))

    def sealed(self, raw: Mapping[str, Any], model: str | None = None, **changes: str) -> OpaqueState:
        origin: Origin = replace(self.endpoint.build_origin(model or self.model), **changes)
        return OpaqueState(json.dumps(raw), origin)

    def neutral(self, message: AssistantMessage, usage: Usage, explanation: str | None) -> dict[str, Any]:
        """In the form of the `.json` files."""
        counted = asdict(usage)
        counted.pop("cost_usd")
        return {
            "blocks": [self.raw(block) for block in message.blocks],
            "kinds": [block.kind for block in message.blocks],
            "stop_reason": message.stop_reason,
            "usage": counted,
            "explanation": explanation,
            "inputs": [call.input for call in message.tool_uses],
        }

    def neutral_answer(self, answer: Answer) -> dict[str, Any]:
        """With the texts and what the user is told, which some of the files have."""
        found = self.neutral(answer.message, answer.usage, answer.explanation)
        texts = {"text": answer.message.text, "thinking": answer.message.thinking}
        return {**found, **texts, "notices": [*answer.notices]}


def plain_request(model: ModelInfo) -> ModelRequest:
    thinking = Thinking("adaptive", effort="high")
    return ModelRequest(model, "You are careful.", TOOLS, (UserMessage.from_text("Hello"),), thinking, 32_000)


def result(call_id: str, value: str = "content", *, is_error: bool = False) -> ToolResultBlock:
    return ToolResultBlock(call_id, value, is_error)


def said(*blocks: ContentBlock, stop: StopReason = "end_turn") -> AssistantMessage:
    return AssistantMessage(blocks, stop)


def asked(*blocks: ToolResultBlock | TextBlock) -> UserMessage:
    return UserMessage(blocks)
