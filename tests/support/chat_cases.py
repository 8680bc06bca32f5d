"""The recorded streams of `tests/fixtures/openai_chat` and the one way to run them through our decoder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from thinklsp.core.accumulator import MessageAccumulator
from thinklsp.core.messages import AssistantMessage, ContentBlock, Origin
from thinklsp.core.stream import MessageFinished, StreamEvent
from thinklsp.core.usage import Usage
from thinklsp.http.sse import SseDecoder
from thinklsp.providers.base import Endpoint
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_chat.servers import ChatServer, server_for

FOLDER = Path(__file__).parents[1] / "fixtures" / "openai_chat"
ENDPOINT = Endpoint("openai-compatible", "http://localhost:11434/v1", "sk-canary-0123456789")
MODEL = "qwen3:8b"
ORIGIN: Origin = ENDPOINT.origin(MODEL)


@dataclass(frozen=True)
class Answer:
    """What became of a stream."""

    message: AssistantMessage
    usage: Usage
    explanation: str | None
    notices: tuple[str, ...]
    events: tuple[StreamEvent, ...]


def cases(*, failing: bool) -> list[str]:
    return [path.stem for path in sorted(FOLDER.glob("*.json")) if ("error" in expected(path.stem)) is failing]


def expected(case: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((FOLDER / f"{case}.json").read_text("utf-8"))
    return value


def stream(case: str) -> bytes:
    return (FOLDER / f"{case}.sse").read_bytes()


def server(kind: str = "generic", *, think_tags: bool = False, echo: str | None = None) -> ChatServer:
    return server_for("", kind=kind, echo=echo, think_tags=think_tags)


def server_of(case: str) -> ChatServer:
    wanted = expected(case)
    return server(wanted.get("server", "generic"), think_tags=wanted.get("think_tags", False))


def raw(block: ContentBlock, origin: Origin = ORIGIN) -> dict[str, Any]:
    assert block.raw is not None
    value: dict[str, Any] = json.loads(block.raw.open_for(origin))
    return value


def run_chunks(
    chunks: Iterable[bytes], kind: ChatServer | None = None, origin: Origin = ORIGIN, *, fits: bool = True
) -> Answer:
    """Return the outcome of a stream that arrives in these pieces. `fits`: none of it may be left out.

    Raises what decoder and accumulator raise.
    """
    sse, decoder = SseDecoder(), OpenAiChatAdapter(kind or server()).decoder()
    accumulator = MessageAccumulator(origin)
    events: list[StreamEvent] = []
    sent = [event for chunk in chunks for event in sse.feed(chunk)]
    for one in (*sent, *sse.finish()):
        events += decoder.feed(one.event, one.data)
    events += decoder.finish()
    for event in events:
        accumulator.apply(event)
    assert not (fits and accumulator.unmatched)
    last = events[-1]
    assert isinstance(last, MessageFinished)
    return Answer(accumulator.message(), accumulator.usage, last.explanation, last.notices, tuple(events))


def run(data: bytes, kind: ChatServer | None = None, origin: Origin = ORIGIN, *, fits: bool = True) -> Answer:
    return run_chunks([data], kind, origin, fits=fits)


def as_events(*contents: Any, end: str = "data: [DONE]\n\n") -> bytes:
    return ("".join(f"data: {json.dumps(content)}\n\n" for content in contents) + end).encode()


def chunk(delta: dict[str, Any] | None = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a stream with one choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def neutral(answer: Answer) -> dict[str, Any]:
    """In the form of the `.json` files, where what is null or empty is left out."""
    message = answer.message
    told = {
        "blocks": [raw(block) for block in message.blocks],
        "kinds": [block.kind for block in message.blocks],
        "stop_reason": message.stop_reason,
        "usage": {key: value for key, value in asdict(answer.usage).items() if value is not None},
        "explanation": answer.explanation,
        "inputs": [call.input for call in message.tool_uses],
        "thinking": message.thinking,
        "text": message.text,
        "notices": list(answer.notices),
    }
    return {key: value for key, value in told.items() if value or key in ("blocks", "kinds")}
