"""Random histories: whatever stands in them, each family keeps the rules of its service and alters nothing sealed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

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

Origins = st.SearchStrategy[dict[str, str]]
_TEXTS = st.text(max_size=6)


def list_own_blocks(family: str, conversation: Conversation) -> list[ContentBlock]:
    samples = FAMILIES[family].samples
    origin = samples.ENDPOINT.build_origin(samples.PLAIN.model.id)
    blocks = [block for message in conversation if isinstance(message, AssistantMessage) for block in message.blocks]
    return [block for block in blocks if block.raw is not None and block.raw.is_issued_by(origin)]


def build_messages(
    blocks: st.SearchStrategy[Any], ids: str, stops: st.SearchStrategy[StopReason], max_size: int
) -> st.SearchStrategy[Message]:
    answers = st.builds(lambda found, stop: said(*found, stop=stop), st.lists(blocks, max_size=max_size), stops)
    own = st.builds(TextBlock, _TEXTS) | st.builds(result, st.sampled_from(ids.split()), _TEXTS)
    return answers | st.builds(lambda found: asked(*found), st.lists(own, max_size=3))


_ANTHROPIC_ORIGINS: Origins = st.sampled_from([{}, {"model": "claude-opus-5"}])
_ANTHROPIC = build_messages(
    st.builds(lambda value, origin: anthropic_samples.text(value, **origin), _TEXTS, _ANTHROPIC_ORIGINS)
    | st.builds(lambda origin: anthropic_samples.thinking("Sig", **origin), _ANTHROPIC_ORIGINS)
    | st.builds(lambda origin: anthropic_samples.call("t1", **origin), _ANTHROPIC_ORIGINS),
    "t1 t2",
    st.just("end_turn"),
    4,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(_ANTHROPIC, min_size=1, max_size=7).map(tuple))
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


_OPENAI_ORIGINS: Origins = st.sampled_from([{}, {}, {}, {"model": "gpt-5.5"}, {"provider": "anthropic"}])
_NAMES = st.integers(0, 10**9).map(str)
_THINKING = st.builds(lambda name, origin: openai_samples.thinking(name, **origin), _NAMES, _OPENAI_ORIGINS)
_OPENAI_BLOCKS: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        lambda value, name, origin: openai_samples.text(value, name, **origin),
        _TEXTS.filter(str.strip),
        _NAMES,
        _OPENAI_ORIGINS,
    ),
    _THINKING,
    _THINKING,
    st.builds(
        lambda name, origin: openai_samples.call(name, **origin), st.sampled_from(["a", "b", "c"]), _OPENAI_ORIGINS
    ),
    st.just(openai_samples.call("toolu_" + "x" * 70, provider="anthropic")),
    st.builds(TextBlock, _TEXTS),
    st.builds(lambda name: opaque({**SEARCH, "id": f"ws_{name}"}), _NAMES),
)
_STOPS: st.SearchStrategy[StopReason] = st.sampled_from(["end_turn", "tool_use", "tool_use", "max_tokens", "other"])
_OPENAI = build_messages(_OPENAI_BLOCKS, "a b c", _STOPS, 5)


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(_OPENAI, max_size=7))
def test_any_history_keeps_the_rules_of_openai(messages: list[Message]) -> None:
    conversation: Conversation = ()
    for message in messages:
        if isinstance(message, AssistantMessage):
            message = ensure_unique_call_ids(message, conversation)
        conversation = (*conversation, message)
    items = items_of(conversation)
    assert broken_rules(items, conversation) == []
    own = [nameless(openai_samples.raw(block)) for block in list_own_blocks("openai", conversation)]
    # Nothing sealed is made up, altered, or sent to somebody who did not issue it.
    assert [item for item in items if "id" in item and nameless(item) not in own] == []


_CHAT_ORIGINS: Origins = st.sampled_from([{}, {"model": "other"}, {"host": "https://other.example"}])


def name_words(origin: Mapping[str, str]) -> str:
    return "Foreign" if origin else "Hm"


_CHAT_BLOCKS: st.SearchStrategy[Any] = (
    st.builds(lambda value, origin: chat_samples.text(value, **origin), _TEXTS, _CHAT_ORIGINS)
    | st.builds(
        lambda field, origin: chat_samples.thinking(name_words(origin), field, **origin),
        st.sampled_from(["reasoning", "reasoning_content", "think_tags"]),
        _CHAT_ORIGINS,
    )
    | st.builds(lambda origin: chat_samples.details(name_words(origin), **origin), _CHAT_ORIGINS)
    | st.builds(
        lambda call_id, arguments, origin: chat_samples.call(call_id, arguments, **origin),
        st.sampled_from(["", "0", "call_1", "é|x", "y" * 50]),
        st.sampled_from(['{"path": "a"}', "", "{"]),
        _CHAT_ORIGINS,
    )
)


@st.composite
def chat_histories(draw: st.DrawFn) -> Conversation:
    """Draw answers as the agent stores them, with results for some calls, for others, and for none."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            message = AssistantMessage(tuple(draw(st.lists(_CHAT_BLOCKS, max_size=4))))
            messages.append(ensure_unique_call_ids(message, tuple(messages)))
            continue
        ids = [one.id for message in messages if isinstance(message, AssistantMessage) for one in message.tool_uses]
        chosen = draw(st.lists(st.sampled_from([*ids, "stray"]), max_size=4, unique=True))
        texts = [TextBlock(value) for value in draw(st.lists(_TEXTS, max_size=2))]
        messages.append(asked(*(result(one, f"of {one}") for one in chosen), *texts))
    return tuple(messages)


@settings(max_examples=examples(250), deadline=None)
@given(chat_histories(), st.sampled_from(KINDS))
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


_GOOGLE_ORIGINS: Origins = st.sampled_from([{}, {}, {"model": "gemini-4-argon"}, {"provider": "openai"}])


@st.composite
def google_answers(draw: st.DrawFn, number: int) -> tuple[AssistantMessage, list[str]]:
    """Draw one answer of a model and the ids of its calls; every signature says where it stands."""
    origin = draw(_GOOGLE_ORIGINS)
    blocks: list[ContentBlock] = []
    ids = []
    for place in range(draw(st.integers(0, 4))):
        signature = draw(st.sampled_from(["", "", f"Sig-{number}-{place}"]))
        match draw(st.sampled_from(["text", "thought", "call", "call", "alone", "bare"])):
            case "text":
                blocks.append(google_samples.text(draw(_TEXTS), signature, **origin))
            case "thought":
                blocks.append(google_samples.thought(draw(_TEXTS), signature, **origin))
            case "call":
                ids.append(f"k{number}-{place}")
                wire_id = draw(st.sampled_from([None, "", "same"]))
                blocks.append(google_samples.call(ids[-1], signature, wire_id=wire_id, **origin))
            case "alone":
                blocks.append(google_samples.signature_alone(f"Sig-{number}-{place}", **origin))
            case _:
                blocks.append(TextBlock(draw(_TEXTS)))
    if draw(st.booleans()) and draw(st.booleans()):
        blocks.append(google_samples.paused(f"T{number}", **origin))
    return said(*blocks), ids


@st.composite
def google_histories(draw: st.DrawFn) -> Conversation:
    """Calls are answered by the next message of the user, in any order and maybe beside words; all else is chance."""
    messages: list[Message] = []
    for number in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            messages.append(asked(*(TextBlock(words) for words in draw(st.lists(_TEXTS, max_size=2)))))
        answer, ids = draw(google_answers(number))
        messages.append(answer)
        if ids:
            blocks: list[ToolResultBlock | TextBlock] = [*map(TextBlock, draw(st.lists(_TEXTS, max_size=1)))]
            blocks += [result(one, draw(_TEXTS), is_error=draw(st.booleans())) for one in ids]
            messages.append(asked(*draw(st.permutations(blocks))))
    if draw(st.booleans()):
        messages.append(UserMessage.from_text(draw(_TEXTS)))
    return tuple(messages)


@settings(max_examples=examples(250), deadline=None)
@given(google_histories(), st.sampled_from([LEVELS, BUDGET, UNKNOWN]))
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
