"""The recorded streams of `tests/fixtures/openai_responses` and the one way to run them through our decoder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from thinklsp.core.accumulator import MessageAccumulator
from thinklsp.core.messages import AssistantMessage, ContentBlock, Origin
from thinklsp.core.stream import BlockDelta, MessageFinished, StreamEvent, TextDelta, ThinkingDelta
from thinklsp.core.usage import Usage
from thinklsp.http.sse import SseDecoder
from thinklsp.providers.base import Endpoint
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter

FOLDER = Path(__file__).parents[1] / "fixtures" / "openai_responses"
ENDPOINT = Endpoint("openai", "https://api.openai.com/v1", "sk-proj-canary-0123456789")
ORIGIN: Origin = ENDPOINT.origin("gpt-6-sol")


@dataclass(frozen=True)
class Answer:
    """What came of a stream. `shown`: what the reader was given while it ran, texts and thinking by block."""

    message: AssistantMessage
    usage: Usage
    end: MessageFinished
    shown: dict[int, str]
    unmatched: int


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


def as_events(*contents: Any) -> bytes:
    return "".join(f"data: {json.dumps(content)}\n\n" for content in contents).encode()


def run(data: bytes | Iterable[bytes], origin: Origin = ORIGIN) -> Answer:
    """Raises what decoder and accumulator raise."""
    sse, decoder = SseDecoder(), OpenAiResponsesAdapter().decoder()
    chunks = [data] if isinstance(data, bytes) else [*data]
    sent = [*(event for chunk in chunks for event in sse.feed(chunk)), *sse.finish()]
    events = [event for one in sent for event in decoder.feed(one.event, one.data)]
    decoder.finish()
    return answer_of(events, origin)


def run_whole(body: Any, origin: Origin = ORIGIN) -> Answer:
    """The answer to a request that was answered with one piece of JSON."""
    decoder = OpenAiResponsesAdapter().decoder()
    events = decoder.feed("", json.dumps(body))
    decoder.finish()
    return answer_of(events, origin)


def answer_of(events: Iterable[StreamEvent], origin: Origin) -> Answer:
    accumulator = MessageAccumulator(origin)
    shown: dict[int, str] = {}
    ends = []
    for event in events:
        accumulator.apply(event)
        match event:
            case BlockDelta(index, TextDelta(text)) | BlockDelta(index, ThinkingDelta(text)):
                shown[index] = shown.get(index, "") + text
            case MessageFinished():
                ends.append(event)
            case _:
                pass
    (end,) = ends
    return Answer(accumulator.message(), accumulator.usage, end, shown, accumulator.unmatched.total())


def neutral(answer: Answer) -> dict[str, Any]:
    """In the form of the `.json` files."""
    counted = asdict(answer.usage)
    counted.pop("cost_usd")
    message = answer.message
    return {
        "blocks": [raw(block) for block in message.blocks],
        "kinds": [block.kind for block in message.blocks],
        "text": message.text,
        "thinking": message.thinking,
        "inputs": [call.input for call in message.tool_uses],
        "stop_reason": message.stop_reason,
        "usage": counted,
        "explanation": answer.end.explanation,
        "notices": [*answer.end.notices],
        **({"unmatched": answer.unmatched} if answer.unmatched else {}),
    }
