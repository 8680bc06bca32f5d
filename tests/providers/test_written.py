"""What was written for one request is not written again for the next, and is the same as if all were new."""

from __future__ import annotations

import gc
import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.services import Place, place
from tests.support.sizes import examples
from thinklsp.core.json_codec import encode_json
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    Message,
    OpaqueState,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers import anthropic, google
from thinklsp.providers import chat_adapter as openai_chat
from thinklsp.providers import responses_adapter as openai_responses
from thinklsp.providers.base import ModelRequest, Thinking

PLACES = [
    place("anthropic", "claude-opus-5-5"),
    place("openai", "gpt-6-sol"),
    place("google", "gemini-3.8-flash"),
    place("openai-compatible", "compatible-1"),
]
TOOLS = (ToolSpec("read_file", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
MEMOS = [module.ENCODED_PARTS._memo for module in (anthropic, openai_responses, google, openai_chat)]
WORDS = st.sampled_from(["", " ", "a", 'ab\n"\\', "é 🙂", "\ud83d", "\u2028", "x" * 60])
IDS = st.sampled_from(["a", "b", "call/1", "toolu_1", ""])
ARGUMENTS = st.none() | st.dictionaries(WORDS, WORDS | st.integers() | st.none(), max_size=2)


def raw_of(where: Place, kind: str, text: str, call_id: str) -> str:
    """A block as the service might have sent it."""
    item: dict[str, object] = {"type": kind, "id": call_id, "name": "read_file", "text": text, "input": {"path": text}}
    match where.provider, kind:
        case "openai", "tool_use":
            item = {
                "type": "function_call",
                "call_id": call_id,
                "name": "read_file",
                "arguments": json.dumps({"p": text}),
            }
        case "openai", "text":
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        case "openai", _:
            item = {"type": "reasoning", "encrypted_content": text or "c", "summary": []}
        case "google", "tool_use":
            item = {
                "functionCall": {"id": call_id, "name": "read_file", "args": {"p": text}},
                "thoughtSignature": "c2ln",
            }
        case "google", _:
            item = {"text": text, "thoughtSignature": "c2ln"}
        case "openai-compatible", "tool_use":
            item = {"id": call_id, "function": {"name": "read_file", "arguments": json.dumps({"p": text})}}
        case "openai-compatible", _:
            item = {"reasoning_content": text}
        case _:
            pass
    return json.dumps(item)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Message, ...]:
    """What the user says, or an answer of one of the services with the results of its calls."""
    if draw(st.booleans()):
        return (UserMessage(tuple(map(TextBlock, draw(st.lists(WORDS, min_size=1, max_size=2))))),)
    where = draw(st.sampled_from(PLACES))
    origin = where.endpoint.build_origin(where.model.id)

    def state(kind: str, text: str, call_id: str = "") -> OpaqueState | None:
        return OpaqueState(raw_of(where, kind, text, call_id), origin) if draw(st.integers(0, 3)) else None

    blocks: list[ThinkingBlock | TextBlock | ToolUseBlock] = []
    for kind in draw(st.lists(st.sampled_from(["thinking", "text", "tool_use"]), min_size=1, max_size=4)):
        text, call_id = draw(WORDS), draw(IDS)
        match kind:
            case "thinking":
                blocks.append(ThinkingBlock(text, state(kind, text)))
            case "text":
                blocks.append(TextBlock(text, state(kind, text)))
            case _:
                blocks.append(ToolUseBlock(call_id, "read_file", draw(ARGUMENTS), state(kind, text, call_id)))
    results = [
        ToolResultBlock(block.id, draw(WORDS), draw(st.booleans()))
        for block in blocks
        if isinstance(block, ToolUseBlock)
    ]
    answer = AssistantMessage(
        tuple(blocks), draw(st.sampled_from(["end_turn", "tool_use", "pause_turn", "max_tokens"]))
    )
    return (answer, UserMessage(tuple(results))) if results else (answer,)


def anew(conversation: Conversation) -> Conversation:
    """The same value, of which nothing has been made yet."""
    return tuple(replace(message, blocks=tuple(map(replace, message.blocks))) for message in conversation)  # type: ignore[arg-type]


def asked(where: Place, conversation: Conversation) -> ModelRequest:
    return ModelRequest(where.model, "You help.", TOOLS, conversation, Thinking(), 1000)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), steps()), min_size=1, max_size=8))
def test_a_growing_conversation_is_written_as_if_it_were_new(course: list[tuple[Place, tuple[Message, ...]]]) -> None:
    conversation: Conversation = (UserMessage.from_text("Begin."),)
    for where, step in course:
        body = bytes(where.encode(asked(where, conversation)).body)
        assert body == bytes(where.encode(asked(where, conversation)).body)
        assert body == bytes(where.encode(asked(where, anew(conversation))).body)
        assert body == encode_json(json.loads(body)), "as the plain writer of JSON has it"
        conversation += step


def test_a_request_writes_what_is_new() -> None:
    """Growth in counts: the second half of a session writes as many pieces as the first."""
    for where in PLACES:
        conversation: Conversation = (UserMessage.from_text("Begin."),)
        origin = where.endpoint.build_origin(where.model.id)
        counts = []
        for number in range(40):
            call = ToolUseBlock(
                f"c{number}", "read_file", {}, OpaqueState(raw_of(where, "tool_use", "x" * 99, f"c{number}"), origin)
            )
            conversation += (AssistantMessage((call,), "tool_use"), UserMessage((ToolResultBlock(call.id, "y" * 99),)))
            counts.append(_written(where, conversation))
        assert max(counts[20:]) <= max(counts[:20]), where.provider


def _written(where: Place, conversation: Conversation) -> int:
    """How many bytes are written anew for a request."""
    before = _kept(conversation)
    where.encode(asked(where, conversation))
    return _kept(conversation) - before


def _kept(conversation: Conversation) -> int:
    parts = [part for message in conversation for part in (message, *message.blocks)]
    known = [known for memo in MEMOS for part in parts if (known := memo.find(part)) is not None]
    return sum(len(value.json) for _, value in known)


def test_what_was_written_goes_with_the_conversation() -> None:
    for where in PLACES:
        gc.collect()
        before = [len(memo._entries) for memo in MEMOS]
        conversation: Conversation = (UserMessage.from_text("Begin."), AssistantMessage((TextBlock("Done."),)))
        where.encode(asked(where, (*conversation, UserMessage.from_text("Again."))))
        assert [len(memo._entries) for memo in MEMOS] > before, where.provider
        del conversation
        gc.collect()
        assert [len(memo._entries) for memo in MEMOS] == before, where.provider
