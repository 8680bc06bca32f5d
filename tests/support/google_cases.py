"""The recorded streams of `tests/fixtures/google` and the one way to run them through our decoder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from thinklsp.core.accumulator import MessageAccumulator
from thinklsp.core.messages import AssistantMessage, ContentBlock, Origin
from thinklsp.core.stream import MessageFinished
from thinklsp.core.usage import Usage
from thinklsp.http.sse import SseDecoder
from thinklsp.providers.base import Endpoint
from thinklsp.providers.google.adapter import GoogleAdapter

FOLDER = Path(__file__).parents[1] / "fixtures" / "google"
ENDPOINT = Endpoint("google", "https://generativelanguage.googleapis.com", "AIzaCanary0123456789abcdefgh")
MODEL = "gemini-3.8-flash"
ORIGIN: Origin = ENDPOINT.origin(MODEL)


def cases(*, failing: bool) -> list[str]:
    return [path.stem for path in sorted(FOLDER.glob("*.json")) if ("error" in expected(path.stem)) is failing]


def expected(case: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((FOLDER / f"{case}.json").read_text("utf-8"))
    return value


def stream(case: str) -> bytes:
    return (FOLDER / f"{case}.sse").read_bytes()


def raw(block: ContentBlock, origin: Origin = ORIGIN) -> dict[str, Any]:
    assert block.raw is not None
    value: dict[str, Any] = json.loads(block.raw.open_for(origin))
    return value


def run(data: bytes, origin: Origin = ORIGIN) -> tuple[AssistantMessage, Usage, str | None]:
    """The message, usage and explanation of a stream. Raises what decoder and accumulator raise."""
    return run_pieces([data], origin)


def run_pieces(pieces: Iterable[bytes], origin: Origin = ORIGIN) -> tuple[AssistantMessage, Usage, str | None]:
    sse, decoder, accumulator = SseDecoder(), GoogleAdapter().decoder(), MessageAccumulator(origin)
    explanation = None
    sent = [event for piece in pieces for event in sse.feed(piece)] + sse.finish()
    events = [event for one in sent for event in decoder.feed(one.event, one.data)]
    for event in (*events, *decoder.finish()):
        accumulator.apply(event)
        if isinstance(event, MessageFinished):
            explanation = event.explanation
    assert not accumulator.unmatched
    return accumulator.message(), accumulator.usage, explanation


def neutral(message: AssistantMessage, usage: Usage, explanation: str | None) -> dict[str, Any]:
    """In the form of the `.json` files."""
    counted = asdict(usage)
    counted.pop("cost_usd")
    return {
        "blocks": [raw(block) for block in message.blocks],
        "kinds": [block.kind for block in message.blocks],
        "stop_reason": message.stop_reason,
        "usage": counted,
        "explanation": explanation,
        "inputs": [call.input for call in message.tool_uses],
    }


def as_stream(*chunks: Any) -> bytes:
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode()


def chunk(*parts: Any, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a stream; `more` goes to its candidate."""
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}, **more}
    return {"candidates": [candidate | ({"finishReason": reason} if reason else {})], "modelVersion": MODEL}
