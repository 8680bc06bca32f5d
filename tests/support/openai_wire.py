"""Encoded requests of the Responses API, taken apart again, and the rules that their input must keep."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.support.openai_cases import ENDPOINT
from tests.support.openai_requests import PLAIN
from thinklsp.core.messages import AssistantMessage, Conversation
from thinklsp.providers.base import Endpoint, ModelRequest
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter

ADAPTER = OpenAiResponsesAdapter()
Item = dict[str, Any]


def body_of(request: ModelRequest, endpoint: Endpoint = ENDPOINT) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(bytes(ADAPTER.encode(request, endpoint).body))
    return value


def items_of(conversation: Conversation, **changes: Any) -> list[Item]:
    """The input without the system prompt."""
    request = replace(PLAIN, conversation=conversation, system="", **changes)
    items: list[Item] = body_of(request)["input"]
    return items


def user(*texts: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}


def bare(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def bare_call(call_id: str, arguments: str = '{"path": "a"}', name: str = "read_file") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, text: str = "content") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def nameless(item: Item) -> Item:
    """A call may be sent under another name than it was given, where that stands in the conversation already."""
    return {key: value for key, value in item.items() if key != "call_id"}


def broken_rules(items: list[Item], issued: Conversation = ()) -> list[str]:
    """What the service would refuse, in short. `issued`: the answers as it gave them, to see that what belongs together
    stayed together; it knows its items by their ids."""
    found = []
    answers = [
        [
            nameless(json.loads(block.raw.open_for(block.raw.origin)))
            for block in message.blocks
            if block.raw is not None
        ]
        for message in issued
        if isinstance(message, AssistantMessage)
    ]
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
