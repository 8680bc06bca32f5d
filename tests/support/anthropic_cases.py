"""The recorded streams of `tests/fixtures/anthropic` and the one way to run them through our decoder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from thinklsp.core.accumulator import MessageAccumulator
from thinklsp.core.messages import AssistantMessage, ContentBlock, Origin, TextBlock
from thinklsp.core.stream import MessageFinished
from thinklsp.core.usage import Usage
from thinklsp.http.sse import SseDecoder
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import Endpoint

FOLDER = Path(__file__).parents[1] / "fixtures" / "anthropic"
ENDPOINT = Endpoint("anthropic", "https://api.anthropic.com", "sk-ant-canary-0123456789")
ORIGIN: Origin = ENDPOINT.origin("claude-opus-5-5")


def cases(*, failing: bool) -> list[str]:
    return [path.stem for path in sorted(FOLDER.glob("*.json")) if ("error" in expected(path.stem)) is failing]


def expected(case: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((FOLDER / f"{case}.json").read_text("utf-8"))
    return value


def stream(case: str) -> bytes:
    return (FOLDER / f"{case}.sse").read_bytes()


def raw(block: ContentBlock, origin: Origin = ORIGIN) -> dict[str, Any]:
    """The block as it came. Of one that is nothing but its text, no more than that is kept."""
    if isinstance(block, TextBlock) and block.raw is None:
        return {"type": "text", "text": block.text}
    assert block.raw is not None
    value: dict[str, Any] = json.loads(block.raw.open_for(origin))
    return value


def run(data: bytes, origin: Origin = ORIGIN) -> tuple[AssistantMessage, Usage, str | None]:
    """The message, usage and explanation of a stream. Raises what decoder and accumulator raise."""
    sse, decoder, accumulator = SseDecoder(), AnthropicAdapter().decoder(), MessageAccumulator(origin)
    explanation = None
    for sent in (*sse.feed(data), *sse.finish()):
        for event in decoder.feed(sent.event, sent.data):
            accumulator.apply(event)
            if isinstance(event, MessageFinished):
                explanation = event.explanation
    decoder.finish()
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
