"""A conversation as the `contents` of generateContent: what goes back as it came, what is rebuilt, what is left out.

Signatures stay on the part that they came on. Answers to calls stand alone in a content of their own, in the order of
the calls; what the user says beside them follows in the next one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    OpaqueBlock,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.written import WrittenParts

CONTINUATION = "continuation"
# Documented by the service: stands for the signature of a call that its model did not make.
UNSIGNED_CALL = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
WRITTEN = WrittenParts()
_EMPTY = "(no text)"
_GO_ON = "Go on where you stopped."
_NO_NAME = re.compile(r"[^a-zA-Z0-9_.:-]")
_LONGEST_NAME = 64

_Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Call:
    """What a call is called on the wire, and where it stands among all calls. `id` None: its answer has none either."""

    place: int
    id: str | None
    name: str


def paused_at(conversation: Conversation, origin: Origin) -> tuple[Conversation, str | None]:
    """The conversation without the pieces of a paused answer at its end, and the token that makes the service go on."""
    end, token = len(conversation), None
    while end and (piece := _continuation(conversation[end - 1], origin)) is not None:
        token = token or piece
        end -= 1
    return conversation[:end], token


def _continuation(message: UserMessage | AssistantMessage, origin: Origin) -> str | None:
    last = message.blocks[-1] if message.blocks else None
    if not isinstance(last, OpaqueBlock) or last.type != CONTINUATION or not last.raw.belongs_to(origin):
        return None
    return str(json.loads(last.raw.open_for(origin))["continuationToken"])


def contents_of(conversation: Conversation, origin: Origin, *, signed_calls: bool) -> list[_Wire]:
    """Begins and ends with the user; nothing in it is empty, and no two contents of the model stand side by side.

    `signed_calls`: the model wants a signature on the first call of every step of the running turn.
    """
    contents: list[_Wire] = []
    calls: dict[str, _Call] = {}
    said: list[UserMessage] = []
    for message in conversation:
        match message:
            case UserMessage():
                said.append(message)
            case AssistantMessage():
                parts = _model_parts(message, origin, calls)
                if parts:
                    contents += _user_contents(said, calls)
                    said.clear()
                    _add_model(contents, parts)
            case _:
                assert_never(message)
    contents += _user_contents(said, calls)
    if not contents or contents[0]["role"] == "model":
        contents.insert(0, _content("user", [{"text": _EMPTY}]))
    if contents[-1]["role"] == "model":
        contents.append(_content("user", [{"text": _GO_ON}]))
    return _with_signatures(contents) if signed_calls else contents


def _content(role: str, parts: list[_Wire]) -> _Wire:
    return {"role": role, "parts": parts}


def _add_model(contents: list[_Wire], parts: list[_Wire]) -> None:
    if contents and contents[-1]["role"] == "model":
        contents[-1]["parts"] += parts
    else:
        contents.append(_content("model", parts))


def _user_contents(said: Sequence[UserMessage], calls: dict[str, _Call]) -> list[_Wire]:
    """A content that mixes answers to calls with anything else is not taken for the user's."""
    if not said:
        return []
    blocks = [block for message in said for block in message.blocks]
    answered = [
        (calls[block.tool_use_id], block)
        for block in blocks
        if isinstance(block, ToolResultBlock) and block.tool_use_id in calls
    ]
    answered.sort(key=lambda pair: pair[0].place)
    answers: list[_Wire] = [WRITTEN.encode(block, call, _answer, call, block) for call, block in answered]
    texts: list[_Wire] = [
        WRITTEN.encode(block, None, _text, block)
        for block in blocks
        if isinstance(block, TextBlock) and block.text.strip()
    ]
    if not answers and not texts:
        texts = [{"text": _EMPTY}]
    return [_content("user", parts) for parts in (answers, texts) if parts]


def _answer(call: _Call, result: ToolResultBlock) -> _Wire:
    response: _Wire = {} if call.id is None else {"id": call.id}
    response |= {"name": call.name, "response": {"error" if result.is_error else "output": result.text}}
    return {"functionResponse": response}


def _model_parts(message: AssistantMessage, origin: Origin, calls: dict[str, _Call]) -> list[_Wire]:
    """What this endpoint and model issued goes back as it came; the rest is rebuilt from what anybody may read. An
    answer with something of ours in it is rebuilt whole: a signature speaks of the parts around it, too.

    `calls` learns what the calls are called on the wire."""
    is_own = all(block.raw is not None and block.raw.belongs_to(origin) for block in message.blocks)
    taken: set[str] = set()
    parts = (_part(block, origin if is_own else None, calls, taken) for block in message.blocks)
    return [part for part in parts if part is not None]


def _part(block: ContentBlock, origin: Origin | None, calls: dict[str, _Call], taken: set[str]) -> _Wire | None:
    """`taken`: ids that the service gave to earlier calls of the message."""
    if block.raw is not None and origin is not None:
        state = block.raw
        raw = WRITTEN.encode(block, origin, lambda: json.loads(state.open_for(origin)))
        return _own_part(block, raw, calls, taken)
    match block:
        case TextBlock():
            return WRITTEN.encode(block, None, _text, block) if block.text.strip() else None
        case ToolUseBlock():
            name = _NO_NAME.sub("_", block.name)[:_LONGEST_NAME] or "_"
            calls[block.id] = _Call(len(calls), block.id, name)
            call = {"id": block.id, "name": name, "args": block.input or {}}
            return WRITTEN.encode(block, None, lambda: {"functionCall": call})
        case ThinkingBlock() | RedactedThinkingBlock() | ServerToolBlock() | OpaqueBlock():
            return None
        case _:
            assert_never(block)


def _text(block: TextBlock) -> _Wire:
    return {"text": block.text}


def _own_part(block: ContentBlock, raw: _Wire, calls: dict[str, _Call], taken: set[str]) -> _Wire | None:
    if isinstance(block, ToolUseBlock):
        call = raw.get("functionCall") or {}
        if call.get("id") in taken and not raw.get("thoughtSignature"):
            call = {**call, "id": block.id}
            raw = {**raw, "functionCall": call}
        if call.get("id"):
            taken.add(call["id"])
        calls[block.id] = _Call(len(calls), call.get("id"), str(call.get("name") or ""))
        return raw
    if isinstance(block, OpaqueBlock):
        return None if block.type == CONTINUATION else raw
    if raw.get("thoughtSignature"):
        return raw
    # Thoughts without a signature are for people: sent back they would only cost.
    return None if isinstance(block, ThinkingBlock) or not raw.get("text") else raw


def _with_signatures(contents: Sequence[_Wire]) -> list[_Wire]:
    """Only the first call of a step is looked at, and only since the user has last spoken."""
    begun = max(index for index, content in enumerate(contents) if _begins_turn(content))
    return [
        _content("model", _signed(content["parts"])) if index > begun and content["role"] == "model" else content
        for index, content in enumerate(contents)
    ]


def _begins_turn(content: _Wire) -> bool:
    return content["role"] == "user" and not any("functionResponse" in part for part in content["parts"])


def _signed(parts: Iterable[_Wire]) -> list[_Wire]:
    signed = list(parts)
    first = next((index for index, part in enumerate(signed) if part.get("functionCall")), None)
    if first is not None and not signed[first].get("thoughtSignature"):
        signed[first] = {**signed[first], "thoughtSignature": UNSIGNED_CALL}
    return signed
