"""The conversation as input items. What this service issued goes back as it came, but only message by message whole.

The service refuses thinking without the item that came after it, and items without the thinking that came before them.
So an answer of which a part is missing or belongs to somebody else is rebuilt bare: texts and calls, without ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Any, assert_never

from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    OpaqueBlock,
    OpaqueState,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.written import WrittenParts

WRITTEN = WrittenParts()
_EMPTY = "(no text)"
_NO_OUTPUT = "(no output)"
_NO_RESULT = "Error: there is no result; the call was not carried out."
_FAILED = "Error: "
_LONGEST_NAME = 64
_DIGEST = 16
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
# Of such an answer the agent may have taken parts away.
_CUT: frozenset[StopReason] = frozenset({"max_tokens", "context_window", "refusal", "other"})
# They wait for an answer that we cannot give, since we never offer such tools.
_UNANSWERED = frozenset(
    {"custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request"}
)

_Wire = dict[str, Any]


def input_items(conversation: Conversation, origin: Origin) -> list[_Wire]:
    """Every call is followed by its output before anything else is said; no content is empty."""
    names = _CallNames()
    items: list[_Wire] = []
    for role, group in groupby(conversation, key=lambda message: message.role):
        if role == "assistant":
            answers = [message for message in group if isinstance(message, AssistantMessage)]
            items += [item for message in answers for item in _assistant_items(message, origin, names)]
        else:
            items += _user_items(group, names) or [_spoken("user", "input_text", [_EMPTY])]
    return [*items, *names.settle({})]


class _CallNames:
    """Owned by one encoding. What calls are named on the wire, and which of them wait for their output."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._waiting: list[tuple[str, str]] = []

    def claim(self, call_id: str, wished: str) -> str:
        """The name of our call `call_id` on the wire: as wished, or one like it where that is taken."""
        name, number = wished, len(self._taken)
        while name in self._taken:
            number += 1
            name = _fit(f"{wished}-{number}")
        self._taken.add(name)
        self._waiting.append((call_id, name))
        return name

    def settle(self, results: Mapping[str, ToolResultBlock]) -> list[_Wire]:
        """An output for every call that waits. Results that answer none are left out: they would be refused."""
        outputs = [_output(results.get(call_id), name) for call_id, name in self._waiting]
        self._waiting.clear()
        return outputs


def _user_items(messages: Iterable[UserMessage | AssistantMessage], names: _CallNames) -> list[_Wire]:
    blocks = [[*message.blocks] for message in messages]
    results = {block.tool_use_id: block for group in blocks for block in group if isinstance(block, ToolResultBlock)}
    texts = [[block.text for block in group if isinstance(block, TextBlock) and block.text.strip()] for group in blocks]
    return [*names.settle(results), *(_spoken("user", "input_text", group) for group in texts if group)]


def _output(result: ToolResultBlock | None, name: str) -> _Wire:
    def made() -> _Wire:
        return {"type": "function_call_output", "call_id": name, "output": _told(result)}

    return made() if result is None else WRITTEN.encode(result, name, made)


def _told(result: ToolResultBlock | None) -> str:
    """The service has no mark for errors, so the text says it."""
    if result is None:
        return _NO_RESULT
    text = result.text if result.text.strip() else _NO_OUTPUT
    return f"{_FAILED}{text}" if result.is_error else text


def _assistant_items(message: AssistantMessage, origin: Origin, names: _CallNames) -> list[_Wire]:
    # Calls of an earlier answer that nobody answered.
    items = names.settle({})
    own = _own_items(message, origin)
    if own is None:
        return [*items, *_bare_items(message, names)]
    for block, item in zip(message.blocks, own, strict=True):
        if isinstance(block, ToolUseBlock):
            wished = item.get("call_id")
            name = names.claim(block.id, wished if isinstance(wished, str) and wished else _fit(block.id))
            if name != wished:
                item = {**item, "call_id": name}
        items.append(item)
    return items


def _own_items(message: AssistantMessage, origin: Origin) -> list[_Wire] | None:
    """The answer as this service gave it; None where it is not all there, or would not be taken back."""
    if message.stop_reason in _CUT:
        return None
    items: list[_Wire] = []
    for block in message.blocks:
        if block.raw is None or not block.raw.belongs_to(origin):
            return None
        items.append(WRITTEN.encode(block, origin, _opened, block.raw, origin))
    return items if _can_go_back(items) else None


def _opened(state: OpaqueState, origin: Origin) -> _Wire:
    item: _Wire = json.loads(state.open_for(origin))
    return item


def _can_go_back(items: Sequence[_Wire]) -> bool:
    """Thinking may be followed by more of it, but something must come of it in the end."""
    return (not items or items[-1].get("type") != "reasoning") and all(map(_is_taken, items))


def _is_taken(item: _Wire) -> bool:
    if item.get("status") == "incomplete":
        return False
    match item.get("type"):
        case "reasoning":
            # Without either of them it cannot be read back: its id points to nothing that is stored.
            return bool(item.get("encrypted_content") or item.get("content"))
        case "message":
            content = item.get("content")
            return isinstance(content, list) and bool(content) and item.get("role", "assistant") == "assistant"
        case "function_call":
            return isinstance(name := item.get("name"), str) and bool(name)
        case kind:
            return kind not in _UNANSWERED


def _bare_items(message: AssistantMessage, names: _CallNames) -> list[_Wire]:
    items: list[_Wire] = []
    for block in message.blocks:
        match block:
            case TextBlock():
                if block.text.strip():
                    items.append(WRITTEN.encode(block, "", _spoken, "assistant", "output_text", [block.text]))
            case ToolUseBlock():
                items.append(
                    {
                        "type": "function_call",
                        "call_id": names.claim(block.id, _fit(block.id)),
                        "name": _fit(block.name),
                        "arguments": json.dumps(block.input or {}, ensure_ascii=False),
                    }
                )
            case ThinkingBlock() | RedactedThinkingBlock() | ServerToolBlock() | OpaqueBlock():
                pass
            case _:
                assert_never(block)
    return items


def _spoken(role: str, kind: str, texts: Sequence[str]) -> _Wire:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def _fit(name: str) -> str:
    """Names of other services may be longer than this one takes, or hold what it refuses."""
    fit = _FOREIGN.sub("_", name) or "_"
    if len(fit) <= _LONGEST_NAME:
        return fit
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{fit[: _LONGEST_NAME - _DIGEST - 1]}-{digest}"
