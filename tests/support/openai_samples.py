"""Samples of the Responses API: recorded streams and the way through our decoder, requests of every shape."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.support.samples import Answer, Recorded, asked, plain_request, read_events, read_stream, result, said
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    OpaqueBlock,
    Origin,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalogue import find_model
from thinklsp.providers.responses_adapter import OpenAiResponsesAdapter

Item = dict[str, Any]
MODEL = "gpt-6-sol"
ENDPOINT = Endpoint("openai", "https://api.openai.com/v1", "sk-proj-canary-0123456789")
RECORDED = Recorded("openai_responses", ENDPOINT, MODEL)
ADAPTER = OpenAiResponsesAdapter()
ORIGIN, FOLDER = RECORDED.origin, RECORDED.folder
cases, expected, stream = RECORDED.cases, RECORDED.expected, RECORDED.stream
raw, sealed = RECORDED.raw, RECORDED.sealed


def as_events(*contents: Any) -> bytes:
    return "".join(f"data: {json.dumps(content)}\n\n" for content in contents).encode()


def run(data: bytes | Iterable[bytes], origin: Origin = ORIGIN) -> Answer:
    return read_stream(ADAPTER, data, origin)


def run_whole(body: Any, origin: Origin = ORIGIN) -> Answer:
    """The answer to a request that was answered with one piece of JSON."""
    decoder = ADAPTER.create_decoder()
    return read_events([*decoder.feed("", json.dumps(body)), *decoder.finish()], origin)


def neutral(answer: Answer) -> dict[str, Any]:
    """In the form of the `.json` files."""
    return RECORDED.neutral_answer(answer) | ({"unmatched": answer.unmatched} if answer.unmatched else {})


def thinking(name: str, summary: str = "", *, secret: str = "gAAAsecret", **origin: str) -> ThinkingBlock:
    parts = [{"type": "summary_text", "text": summary}] if summary else []
    raw = {"id": f"rs_{name}", "type": "reasoning", "summary": parts, "encrypted_content": f"{secret}{name}"}
    return ThinkingBlock(summary, sealed(raw, **origin))


def bare_call(call_id: str, arguments: str = '{"path": "a"}', name: str = "read_file") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def call(call_id: str, *, arguments: str = '{"path": "a"}', wire_id: str | None = None, **origin: str) -> ToolUseBlock:
    """The arguments have a space that no encoder of ours would write."""
    wire = bare_call(call_id if wire_id is None else wire_id, arguments) | {"status": "completed"}
    return ToolUseBlock(call_id, "read_file", {"path": "a"}, sealed({"id": f"fc_{call_id}", **wire}, **origin))


def text(value: str, name: str = "1", *, phase: str = "final_answer", **origin: str) -> TextBlock:
    content = {"type": "output_text", "text": value, "annotations": [], "logprobs": []}
    raw = {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed", "phase": phase}
    return TextBlock(value, sealed({**raw, "content": [content]}, **origin))


def opaque(raw: dict[str, Any], **origin: str) -> OpaqueBlock:
    return OpaqueBlock(raw["type"], sealed(raw, **origin))


SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}


def loop(**origin: str) -> tuple[UserMessage | AssistantMessage, ...]:
    """A question and two steps of a tool loop; everything that the model said was issued by the given origin."""
    first = (thinking("1", "I look.", **origin), text("Looking.", phase="commentary", **origin))
    second = (thinking("3", **origin), opaque(SEARCH, **origin), call("call_2", **origin), call("call_3", **origin))
    return (
        UserMessage.from_text("Why?"),
        said(*first, thinking("2", **origin), call("call_1", **origin), stop="tool_use"),
        asked(result("call_1")),
        said(*second, stop="tool_use"),
        asked(result("call_2"), result("call_3", "no such file", is_error=True)),
    )


A = UserMessage.from_text("a")
PLAIN = plain_request(find_model("openai", MODEL))

REQUESTS: dict[str, ModelRequest] = {
    "plain": PLAIN,
    "summaries": replace(PLAIN, thinking=Thinking("adaptive", effort="low", summarized=True)),
    "the service's own effort": replace(PLAIN, thinking=Thinking("adaptive")),
    "nothing said about thinking": replace(PLAIN, thinking=Thinking()),
    "off": replace(PLAIN, thinking=Thinking("off")),
    "no system, no tools, no limit": replace(PLAIN, system="", tools=(), max_tokens=None),
    "tool loop": replace(PLAIN, conversation=loop()),
    "tool loop of another model": replace(PLAIN, conversation=loop(model="gpt-5.5")),
    "a cut answer": replace(
        PLAIN, conversation=(A, said(thinking("1"), text("Half"), stop="max_tokens"), UserMessage.from_text("b"))
    ),
    "lone surrogate": replace(PLAIN, conversation=(UserMessage.from_text("half a pair: \ud83d, and \u2028"),)),
}


def body_of(request: ModelRequest, endpoint: Endpoint = ENDPOINT) -> dict[str, Any]:
    return dict(json.loads(ADAPTER.encode(request, endpoint).body))


def items_of(conversation: Conversation, **changes: Any) -> list[Item]:
    """The input without the system prompt."""
    return list(body_of(replace(PLAIN, conversation=conversation, system="", **changes))["input"])


def user(*texts: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}


def bare(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def output(call_id: str, text: str = "content") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def nameless(item: Item) -> Item:
    """A call may be sent under another name than it was given, where that stands in the conversation already."""
    return {key: value for key, value in item.items() if key != "call_id"}


def broken_rules(items: list[Item], issued: Conversation = ()) -> list[str]:
    """Return what the service would refuse. `issued`: its answers, whose items have to stay together."""
    found = []
    messages = [message for message in issued if isinstance(message, AssistantMessage)]
    states = [[block.raw for block in message.blocks if block.raw] for message in messages]
    answers = [[nameless(json.loads(state.reveal_for(state.origin))) for state in each] for each in states]
    known = [nameless(item) for item in items]
    for at, item in enumerate(items):
        follower = items[at + 1] if at + 1 < len(items) else {}
        if item["type"] == "reasoning":
            if "summary" not in item or not (item.get("encrypted_content") or item.get("content")):
                found.append(f"{item['id']} cannot be read")
            if "id" not in follower:
                found.append(f"{item['id']} without its required following item")
        if "id" in item and not any(_stands_whole(known, at, answer) for answer in answers):
            found.append(f"{item['id']} without its required 'reasoning' item")
        if item["type"] == "message" and not all(_words(part) for part in item["content"] or [{}]):
            found.append("an empty message")
    return found + _broken_pairs(items)


def _stands_whole(items: list[Item], at: int, answer: list[Item]) -> bool:
    """Whether the item in this place belongs to the answer, and all the rest of that stands around it."""
    starts = (at - place for place, item in enumerate(answer) if item == items[at])
    return any(start >= 0 and items[start : start + len(answer)] == answer for start in starts)


def _words(part: Item) -> bool:
    return bool(str(part.get("text", part.get("refusal", ""))).strip())


def _broken_pairs(items: list[Item]) -> list[str]:
    found, waiting, seen = [], set(), set()
    for item in items:
        call_id = item.get("call_id", "")
        match item["type"]:
            case "function_call":
                if not 0 < len(call_id) <= 64 or call_id in seen:
                    found.append(f"call id {call_id!r} is too long, or stands twice")
                seen.add(call_id)
                waiting.add(call_id)
            case "function_call_output":
                if call_id not in waiting:
                    found.append(f"No tool call found for function call output with call_id {call_id}.")
                waiting.discard(call_id)
            case "message" if item["role"] == "user" and waiting:
                found.append("an output behind the user's text")
            case _:
                pass
    return found + [f"No tool output found for function call {call_id}." for call_id in sorted(waiting)]
