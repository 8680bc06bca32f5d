"""A session to read and to keep elsewhere: Markdown and JSON, without anything that a service has sealed.

Opaque state is named by its digest and length, so that two exports can be compared. Readable thinking is left out
unless it is asked for. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, assert_never

from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Message,
    OpaqueBlock,
    OpaqueState,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.sessions.codec import USAGE_COLUMNS, contents, storable
from thinklsp.sessions.session import Session
from thinklsp.sessions.values import Summary

RESULT_LIMIT = 4000
_FORMAT = 1


def to_markdown(
    session: Session,
    summary: Summary | None = None,
    *,
    thinking: bool = False,
    answered: Callable[[str], str] = str,
) -> str:
    """Every prompt and answer as it was said; calls and results in blocks of code, long ones cut. `answered`: what
    becomes of the model's own words, which may be previewed."""
    parts = [f"# {session.title or 'Session'}", "\n".join(_facts(session, summary))]
    parts += _conversation(session, thinking, answered)
    return storable("\n\n".join(parts)) + "\n"


def model_texts(session: Session, *, thinking: bool = False) -> Iterator[str]:
    """Yield every text that `to_markdown` gives to `answered`."""
    for message in session.conversation:
        if isinstance(message, AssistantMessage):
            kinds = TextBlock | ThinkingBlock if thinking else TextBlock
            yield from (block.text for block in message.blocks if isinstance(block, kinds))


def _conversation(session: Session, thinking: bool, answered: Callable[[str], str]) -> Iterator[str]:
    prompts = list(session.placed_prompts())
    for at in range(len(session.conversation) + 1):
        for _, prompt in (placed for placed in prompts if placed[0] == at):
            yield from ("## You", prompt.text, f"*No answer: {prompt.reason or prompt.why}*")
        if at < len(session.conversation):
            yield from _message(session.conversation[at], thinking, answered)


def _facts(session: Session, summary: Summary | None) -> Iterator[str]:
    yield f"- session {session.id}, {session.steps} {'step' if session.steps == 1 else 'steps'}"
    if summary is not None:
        yield f"- workspace {summary.workspace}"
        yield f"- begun {summary.created:%Y-%m-%d %H:%M} UTC, last used {summary.updated:%Y-%m-%d %H:%M} UTC"
        if summary.model:
            yield f"- model {summary.model}"
    if session.usage.input_tokens is not None or session.usage.output_tokens is not None:
        read, written = session.usage.input_tokens or 0, session.usage.output_tokens or 0
        yield f"- {read:,} tokens in, {written:,} tokens out"
    if session.usage.cost_usd is not None:
        yield f"- cost {session.usage.cost_usd:.4f} US dollars"


def _message(message: Message, thinking: bool, answered: Callable[[str], str]) -> Iterator[str]:
    words = answered if isinstance(message, AssistantMessage) else str
    shown = [text for block in message.blocks if (text := _shown(block, thinking, words))]
    # Results of tools belong to the answer that asked for them.
    if isinstance(message, AssistantMessage) or any(isinstance(block, TextBlock) for block in message.blocks):
        speaker = "## thinklsp" if isinstance(message, AssistantMessage) else "## You"
        results = sum(isinstance(block, ToolResultBlock) for block in message.blocks)
        yield from shown[:results]
        yield speaker
        yield from shown[results:]
    else:
        yield from shown


def _shown(block: ContentBlock | ToolResultBlock, thinking: bool, words: Callable[[str], str]) -> str:
    match block:
        case TextBlock():
            return words(block.text)
        case ThinkingBlock():
            return "> " + words(block.text).replace("\n", "\n> ") if thinking and block.text else ""
        case ToolUseBlock():
            arguments = "(its arguments could not be read)" if block.input is None else _json(dict(block.input))
            return f"Called `{block.name}`:\n\n{_fenced(_cut(arguments))}"
        case ToolResultBlock():
            said = "It failed" if block.is_error else "Result"
            return f"{said}:\n\n{_fenced(_cut(block.text))}"
        case ServerToolBlock():
            return f"(the service used its own tool `{block.name}`)"
        case RedactedThinkingBlock() | OpaqueBlock():
            return ""
        case _:
            assert_never(block)


def to_json(session: Session, summary: Summary | None = None, *, thinking: bool = False) -> str:
    """The whole session as data; opaque state as sha256 and length."""
    data: dict[str, Any] = {
        "format": _FORMAT,
        "id": session.id,
        "title": session.title,
        "workspace": session.workspace,
        "steps": session.steps,
        "choices": dict(session.choices),
        "usage": {name: getattr(session.usage, name) for name in USAGE_COLUMNS},
    }
    if summary is not None:
        data |= {"model": summary.model, "created": summary.created.isoformat(), "updated": summary.updated.isoformat()}
    data["messages"] = [_message_data(message, thinking) for message in session.conversation]
    data["unanswered"] = [
        {"text": prompt.text, "messages": at, "outcome": prompt.outcome, "reason": prompt.reason}
        for at, prompt in session.placed_prompts()
    ]
    return json.dumps(data, indent=2) + "\n"


def _message_data(message: Message, thinking: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role}
    if not isinstance(message, UserMessage):
        data["stop_reason"] = message.stop_reason
    return data | {"blocks": [_block_data(block, thinking) for block in message.blocks]}


def _block_data(block: ContentBlock | ToolResultBlock, thinking: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": block.kind}
    match block:
        case TextBlock():
            data["text"] = block.text
        case ThinkingBlock():
            data |= {"text": block.text} if thinking else {}
        case ToolUseBlock():
            data |= {"id": block.id, "name": block.name, "input": None if block.input is None else dict(block.input)}
        case ToolResultBlock():
            data |= {"id": block.tool_use_id, "is_error": block.is_error, "text": block.text}
        case ServerToolBlock():
            data["name"] = block.name
        case OpaqueBlock():
            data["type"] = block.type
        case RedactedThinkingBlock():
            pass
        case _:
            assert_never(block)
    raw: OpaqueState | None = getattr(block, "raw", None)
    if raw is not None:
        sealed = contents(raw)
        digest = hashlib.sha256(sealed).hexdigest()
        data["opaque"] = {"sha256": digest, "length": len(sealed), "model": raw.origin.model}
    return data


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _cut(text: str) -> str:
    left_out = len(text) - RESULT_LIMIT
    return text if left_out <= 0 else f"{text[:RESULT_LIMIT]}\n… {left_out:,} more characters"


def _fenced(text: str) -> str:
    """In a fence that is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
