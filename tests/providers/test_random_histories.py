"""Random histories: whatever stands in them, each family keeps the rules of its service and alters nothing sealed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers.families import FAMILIES
from tests.support import anthropic_samples, chat_samples, google_samples, openai_samples
from tests.support.chat_samples import KINDS, messages_of
from tests.support.google_samples import BUDGET, DUMMY, LEVELS, UNKNOWN
from tests.support.openai_samples import SEARCH, broken_rules, items_of, nameless, opaque
from tests.support.samples import asked, result, said
from tests.support.sizes import examples
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    Message,
    OpaqueBlock,
    StopReason,
    TextBlock,
    ToolResultBlock,
    UserMessage,
    ensure_unique_call_ids,
)
from thinklsp.providers.catalogue import ModelInfo

_TEXTS = st.text(max_size=6) | st.sampled_from(["é 🙂", "\ud83d", "\u2028", "x" * 60])
_STOPS: st.SearchStrategy[StopReason] = st.sampled_from(["end_turn", "tool_use", "tool_use", "max_tokens", "other"])
# Who issued a block: mostly the service that is asked.
ORIGINS: Sequence[Mapping[str, str]] = ({}, {}, {"model": "another"}, {"host": "https://other.example"})
# Makes a block from words, a name that no other block has, and who issued it.
Make = Callable[[st.DrawFn, str, str, Mapping[str, str]], ContentBlock]


def make_chat_thinking(draw: st.DrawFn, _words: str, _name: str, origin: Mapping[str, str]) -> ContentBlock:
    words = "Foreign" if origin else "Hm"
    field = draw(st.sampled_from(["reasoning", "reasoning_content", "think_tags", "reasoning_details"]))
    if field == "reasoning_details":
        return chat_samples.details(words, **origin)
    return chat_samples.thinking(words, field, **origin)


def make_google_text(draw: st.DrawFn, words: str, name: str, origin: Mapping[str, str]) -> ContentBlock:
    make = draw(st.sampled_from([google_samples.text, google_samples.thought]))
    return make(words, draw(st.sampled_from(["", f"Sig-{name}"])), **origin)


def make_google_call(draw: st.DrawFn, _words: str, name: str, origin: Mapping[str, str]) -> ContentBlock:
    signature = draw(st.sampled_from(["", "", f"Sig-{name}"]))
    return google_samples.call(name, signature, wire_id=draw(st.sampled_from([None, "", "same"])), **origin)


MAKERS: Mapping[str, Sequence[Make]] = {
    "anthropic": (
        lambda _, words, _name, origin: anthropic_samples.text(words, **origin),
        lambda _, _words, name, origin: anthropic_samples.thinking(f"Sig-{name}", **origin),
        lambda draw, _words, _name, origin: anthropic_samples.call(draw(st.sampled_from(["t1", "t2"])), **origin),
    ),
    "openai": (
        lambda _, words, name, origin: openai_samples.text(words.strip() or "x", name, **origin),
        lambda _, _words, name, origin: openai_samples.thinking(name, **origin),
        lambda draw, _words, _name, origin: openai_samples.call(draw(st.sampled_from(["a", "b", "c"])), **origin),
        lambda _, _words, _name, _origin: openai_samples.call("toolu_" + "x" * 70, provider="anthropic"),
        lambda _, _words, name, _origin: opaque({**SEARCH, "id": f"ws_{name}"}),
    ),
    "chat": (
        lambda _, words, _name, origin: chat_samples.text(words, **origin),
        make_chat_thinking,
        lambda draw, _words, _name, origin: chat_samples.call(
            draw(st.sampled_from(["", "0", "call_1", "é|x", "y" * 50])),
            draw(st.sampled_from(['{"path": "a"}', "", "{"])),
            **origin,
        ),
    ),
    "google": (
        make_google_text,
        make_google_call,
        lambda _, _words, name, origin: google_samples.signature_alone(f"Sig-{name}", **origin),
    ),
}


@st.composite
def histories(draw: st.DrawFn, family: str) -> Conversation:
    """Draw answers as the agent stores them. Results come for some calls, for none, and for others in any order."""
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            messages.append(asked(*map(TextBlock, draw(st.lists(_TEXTS, max_size=2)))))
        origin = draw(st.sampled_from(ORIGINS))
        makers = (*MAKERS[family], lambda _, words, _name, _origin: TextBlock(words))
        blocks = [
            draw(st.sampled_from(makers))(draw, draw(_TEXTS), f"{number}-{place}", origin)
            for place in range(draw(st.integers(0, 5)))
        ]
        if family == "google" and draw(st.integers(0, 3)) == 0:
            blocks.append(google_samples.paused(f"T{number}", **origin))
        answer = ensure_unique_call_ids(said(*blocks, stop=draw(_STOPS)), tuple(messages))
        messages.append(answer)
        results = [result(call.id, draw(_TEXTS), is_error=draw(st.booleans())) for call in answer.tool_uses]
        if family != "google":
            # Gemini's adapter leaves it to the agent that every call has its result.
            results = results[: draw(st.integers(0, 5))] + [result("stray")][: draw(st.integers(0, 1))]
        beside: list[ToolResultBlock | TextBlock] = [*results, *map(TextBlock, draw(st.lists(_TEXTS, max_size=1)))]
        if results:
            messages.append(asked(*draw(st.permutations(beside))))
    if draw(st.booleans()):
        messages.append(UserMessage.from_text(draw(_TEXTS)))
    return tuple(messages)


def list_own_blocks(family: str, conversation: Conversation) -> list[ContentBlock]:
    samples = FAMILIES[family].samples
    origin = samples.ENDPOINT.build_origin(samples.PLAIN.model.id)
    blocks = [block for message in conversation if isinstance(message, AssistantMessage) for block in message.blocks]
    return [block for block in blocks if block.raw is not None and block.raw.is_issued_by(origin)]


@settings(max_examples=examples(200), deadline=None)
@given(histories("anthropic"))
def test_any_history_has_the_shape_that_anthropic_takes(conversation: Conversation) -> None:
    messages = anthropic_samples.messages_of(conversation)
    assert all(one["role"] != other["role"] for one, other in pairwise(messages))
    for message in messages:
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
        if message["role"] == "user":
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
        else:
            # Only a paused answer stands last, and it goes back as it came.
            assert kinds[-1] != "thinking" or message is messages[-1]
            assert not anthropic_samples.marks(message)
    assert len(anthropic_samples.marks(messages)) <= 2
    own = list_own_blocks("anthropic", conversation)
    assert [block for message in messages for block in message["content"] if block["type"] == "thinking"] == [
        anthropic_samples.raw(block) for block in own if block.kind == "thinking"
    ]


@settings(max_examples=examples(250), deadline=None)
@given(histories("openai"))
def test_any_history_keeps_the_rules_of_openai(conversation: Conversation) -> None:
    items = items_of(conversation)
    assert broken_rules(items, conversation) == []
    own = [nameless(openai_samples.raw(block)) for block in list_own_blocks("openai", conversation)]
    # Nothing sealed is made up, altered, or sent to somebody who did not issue it.
    assert [item for item in items if "id" in item and nameless(item) not in own] == []


@settings(max_examples=examples(250), deadline=None)
@given(histories("chat"), st.sampled_from(KINDS))
def test_whatever_the_history_every_call_is_answered_at_once(conversation: Conversation, kind: str) -> None:
    messages = messages_of(conversation, chat_samples.server(kind))
    seen: set[str] = set()
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        assert message["role"] in ("user", "assistant")
        calls = message.get("tool_calls", [])
        assert calls or message["content"]
        assert message["role"] == "assistant" or message["content"].strip()
        assert "tool_calls" not in message or calls
        ids = [one["id"] for one in calls]
        assert len(set(ids)) == len(ids)
        assert not seen & set(ids)
        seen |= set(ids)
        for one in calls:
            assert isinstance(json.loads(one["function"]["arguments"]), dict)
        behind = messages[index : index + len(ids)]
        assert [(one["role"], one.get("tool_call_id")) for one in behind] == [("tool", call_id) for call_id in ids]
        index += len(ids)
    for one, other in pairwise(messages):
        assert one["role"] != other["role"] or one["role"] == "tool"
    assert "Foreign" not in json.dumps(messages)


@settings(max_examples=examples(250), deadline=None)
@given(histories("google"), st.sampled_from([LEVELS, BUDGET, UNKNOWN]))
def test_whatever_the_history_google_takes_it(conversation: Conversation, info: ModelInfo) -> None:
    origin = google_samples.ENDPOINT.build_origin(info.id)
    conversation = tuple(reissue(message, info.id) for message in conversation)
    body = google_samples.body_of(replace(google_samples.PLAIN, model=info, conversation=conversation))
    assert google_samples.broken_rules(body["contents"], signed_calls=info is not BUDGET) == []
    sent = [part for content in body["contents"] for part in content["parts"]]
    pieces = 0
    while pieces < len(conversation) and pauses(conversation[-1 - pieces], info.id):
        pieces += 1
    # An answer with something of ours in it goes back in words alone.
    whole = [
        message
        for message in conversation[: len(conversation) - pieces]
        if isinstance(message, AssistantMessage)
        and all(block.raw is not None and block.raw.is_issued_by(origin) for block in message.blocks)
    ]
    issued = [google_samples.raw(block, origin) for message in whole for block in message.blocks]
    own = [part for part in issued if part.get("thoughtSignature")]
    assert [part for part in sent if part.get("thoughtSignature") not in (None, DUMMY)] == own
    assert ("continuationToken" in body) is bool(pieces)
    assert "continuation" not in json.dumps(body["contents"])


def reissue(message: Message, model_id: str) -> Message:
    """Seal what the default model issued as if the given one had."""
    if isinstance(message, UserMessage):
        return message
    own = {id(block) for block in list_own_blocks("google", (message,))}
    blocks = tuple(
        replace(block, raw=google_samples.sealed(google_samples.raw(block), model_id)) if id(block) in own else block
        for block in message.blocks
    )
    return replace(message, blocks=blocks)


def pauses(message: Message, model_id: str) -> bool:
    last = message.blocks[-1] if message.blocks else None
    origin = google_samples.ENDPOINT.build_origin(model_id)
    return isinstance(last, OpaqueBlock) and last.type == "continuation" and last.raw.is_issued_by(origin)
