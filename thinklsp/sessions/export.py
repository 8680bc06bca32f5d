"""Export of sessions as Markdown or JSON, without opaque state.

The JSON contains a digest and the length of each opaque state, so that two exports can be compared. Thinking is
included only on request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, assert_never

from thinklsp.core.images import format_placeholder
from thinklsp.core.markdown import wrap_in_fence
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    ImageBlock,
    Message,
    OpaqueBlock,
    OpaqueState,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserBlock,
    UserMessage,
    UserPrompt,
)
from thinklsp.sessions.codec import USAGE_COLUMNS, replace_surrogates, reveal_content
from thinklsp.sessions.session import Session, SessionSummary

MAX_RESULT_CHARS = 4000
_FORMAT_VERSION = 1


def to_markdown(
    session: Session,
    summary: SessionSummary | None = None,
    *,
    thinking: bool = False,
    transform_text: Callable[[str], str] = str,
) -> str:
    """Return the session as Markdown, with tool calls and results in code blocks. Long results are truncated.

    `transform_text` is applied to the model's text, because editors may render it.
    """
    parts = [f"# {session.title or 'Session'}", "\n".join(_format_facts(session, summary))]
    parts += _format_conversation(session, thinking, transform_text)
    return replace_surrogates("\n\n".join(parts)) + "\n"


def list_model_texts(session: Session, *, thinking: bool = False) -> Iterator[str]:
    """Yield every text to which `to_markdown` applies `transform_text`."""
    for message in session.conversation:
        if isinstance(message, AssistantMessage):
            kinds = TextBlock | ThinkingBlock if thinking else TextBlock
            yield from (block.text for block in message.blocks if isinstance(block, kinds))
    yield from (prompt.partial_text for prompt in session.prompts if prompt.partial_text)


def _format_conversation(session: Session, thinking: bool, transform_text: Callable[[str], str]) -> Iterator[str]:
    prompts = list(session.list_placed_prompts())
    for at in range(len(session.conversation) + 1):
        for _, prompt in (placed for placed in prompts if placed[0] == at):
            yield from ("## You", prompt.text) if prompt.text else ()
            yield from ("## thinklsp", transform_text(prompt.partial_text)) if prompt.partial_text else ()
            ending = "Not finished" if prompt.partial_text or not prompt.text else "No answer"
            yield f"*{ending}: {prompt.reason or prompt.explanation}*"
        if at < len(session.conversation):
            yield from _format_message(session.conversation[at], thinking, transform_text)


def _format_facts(session: Session, summary: SessionSummary | None) -> Iterator[str]:
    yield f"- session {session.id}, {session.steps} {'step' if session.steps == 1 else 'steps'}"
    if summary is not None:
        yield f"- workspace {summary.workspace}"
        yield f"- created {summary.created:%Y-%m-%d %H:%M} UTC, last used {summary.updated:%Y-%m-%d %H:%M} UTC"
        if summary.model:
            yield f"- model {summary.model}"
    if session.usage.input_tokens is not None or session.usage.output_tokens is not None:
        input_tokens, output_tokens = session.usage.input_tokens or 0, session.usage.output_tokens or 0
        yield f"- {input_tokens:,} tokens in, {output_tokens:,} tokens out"
    if session.usage.cost_usd:
        yield f"- cost {session.usage.cost_usd:.4f} US dollars"


def _format_message(message: Message, thinking: bool, transform_text: Callable[[str], str]) -> Iterator[str]:
    words = transform_text if isinstance(message, AssistantMessage) else str
    texts = [text for block in message.blocks if (text := _format_block(block, thinking, words))]
    # Tool results and their images appear together with the tool calls in the model's answer.
    results = sum(isinstance(block, ToolResultBlock) for block in message.blocks)
    results += len(message.result_images) if isinstance(message, UserMessage) else 0
    if isinstance(message, AssistantMessage) or len(message.blocks) > results:
        speaker = "## thinklsp" if isinstance(message, AssistantMessage) else "## You"
        yield from texts[:results]
        yield speaker
        yield from texts[results:]
    else:
        yield from texts


def _format_block(block: ContentBlock | UserBlock, thinking: bool, transform_text: Callable[[str], str]) -> str:
    match block:
        case TextBlock():
            return transform_text(block.text)
        case ThinkingBlock():
            return "> " + transform_text(block.text).replace("\n", "\n> ") if thinking and block.text else ""
        case ToolUseBlock():
            arguments = "(the arguments could not be parsed)"
            if block.input is not None:
                arguments = json.dumps(dict(block.input), indent=2, ensure_ascii=False)
            return f"Called `{block.name}`:\n\n{wrap_in_fence(_cut(arguments))}"
        case ToolResultBlock():
            label = "Error" if block.is_error else "Result"
            return f"{label}:\n\n{wrap_in_fence(_cut(block.text))}"
        case ImageBlock():
            return f"*{format_placeholder(block)}*"
        case ServerToolBlock():
            return f"(the provider used its own tool `{block.name}`)"
        case RedactedThinkingBlock() | OpaqueBlock():
            return ""
        case _:
            assert_never(block)


def to_json(
    session: Session,
    summary: SessionSummary | None = None,
    *,
    thinking: bool = False,
    turns: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the entire session as JSON. The SHA-256 digest and the length replace each opaque state.

    `turns` describes the usage and the changed files of each turn. The blocks of prompts name their turns.
    """
    data: dict[str, Any] = {
        "format": _FORMAT_VERSION,
        "id": session.id,
        "title": session.title,
        "workspace": session.workspace,
        "steps": session.steps,
        "choices": dict(session.choices),
        "usage": {name: getattr(session.usage, name) for name in USAGE_COLUMNS},
    }
    if summary is not None:
        data |= {"model": summary.model, "created": summary.created.isoformat(), "updated": summary.updated.isoformat()}
    data["messages"] = [
        {"role": message.role}
        | ({"stop_reason": message.stop_reason} if isinstance(message, AssistantMessage) else {})
        | {"blocks": [_build_block_data(block, thinking) for block in message.blocks]}
        for message in session.conversation
    ]
    data["unanswered"] = [
        {
            "text": prompt.text,
            "messages": at,
            "outcome": prompt.outcome,
            "reason": prompt.reason,
            "turn": prompt.turn_id,
            "partial": prompt.partial_text,
            "references": list(prompt.references),
        }
        for at, prompt in session.list_placed_prompts()
    ]
    data["turns"] = list(turns)
    return json.dumps(data, indent=2) + "\n"


def _build_block_data(block: ContentBlock | UserBlock, thinking: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": block.kind}
    match block:
        case TextBlock(prompt=UserPrompt() as prompt):
            data |= {"text": block.text, "turn": prompt.turn_id}
        case TextBlock():
            data["text"] = block.text
        case ThinkingBlock():
            data |= {"text": block.text} if thinking else {}
        case ToolUseBlock():
            data |= {"id": block.id, "name": block.name, "input": None if block.input is None else dict(block.input)}
        case ToolResultBlock():
            data |= {"id": block.tool_use_id, "is_error": block.is_error, "text": block.text}
        case ImageBlock():
            data |= {"name": block.name, "mediaType": block.media_type, "sha256": block.digest}
            data |= {"length": len(block.data), "width": block.width, "height": block.height}
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
        sealed = reveal_content(raw)
        digest = hashlib.sha256(sealed).hexdigest()
        data["opaque"] = {"sha256": digest, "length": len(sealed), "model": raw.origin.model}
    return data


def _cut(text: str) -> str:
    left_out = len(text) - MAX_RESULT_CHARS
    return text if left_out <= 0 else f"{text[:MAX_RESULT_CHARS]}\n… {left_out:,} more characters"
