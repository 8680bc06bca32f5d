"""Random histories: the service takes whatever stands in them, and every signature stands where it came."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.google_cases import ENDPOINT, ORIGIN, raw
from tests.support.google_requests import (
    BUDGET,
    LEVELS,
    PLAIN,
    UNKNOWN,
    asked,
    call,
    paused,
    result,
    said,
    sealed,
    signature_alone,
    text,
    thought,
)
from tests.support.google_wire import DUMMY, Json, answered, body_of, broken_rules, called, model, user
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    Message,
    OpaqueBlock,
    Origin,
    TextBlock,
    UserMessage,
)
from thinklsp.providers.model_info import ModelInfo

EMPTY = {"text": "(no text)"}
_ORIGINS = st.sampled_from([{}, {}, {"model": "gemini-4-argon"}, {"provider": "openai"}])
_SIGNATURES = st.sampled_from(["", "", "Sig"])
_TEXTS = st.text(max_size=4)
_WIRE_IDS = st.sampled_from([None, "", "same"])


@st.composite
def _answers(draw: st.DrawFn, number: int) -> tuple[AssistantMessage, list[str]]:
    """One answer of a model and the ids of its calls; every signature says where it stands."""
    origin = draw(_ORIGINS)
    blocks: list[ContentBlock] = []
    ids = []
    for place in range(draw(st.integers(0, 4))):
        signature = draw(_SIGNATURES) and f"Sig-{number}-{place}"
        kind = draw(st.sampled_from(["text", "thought", "call", "call", "alone", "bare"]))
        if kind == "text":
            blocks.append(text(draw(_TEXTS), signature, **origin))
        elif kind == "thought":
            blocks.append(thought(draw(_TEXTS), signature, **origin))
        elif kind == "call":
            ids.append(f"k{number}-{place}")
            blocks.append(call(ids[-1], signature, wire_id=draw(_WIRE_IDS), **origin))
        elif kind == "alone":
            blocks.append(signature_alone(f"Sig-{number}-{place}", **origin))
        else:
            blocks.append(TextBlock(draw(_TEXTS)))
    if draw(st.booleans()) and draw(st.booleans()):
        blocks.append(paused(f"T{number}", **origin))
    return said(*blocks), ids


@st.composite
def _conversations(draw: st.DrawFn) -> Conversation:
    """Calls are answered by the next message of the user, in any order and maybe beside words; all else is chance."""
    messages: list[Message] = []
    for number in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            messages.append(asked(*(TextBlock(words) for words in draw(st.lists(_TEXTS, max_size=2)))))
        answer, ids = draw(_answers(number))
        messages.append(answer)
        if ids:
            words = [TextBlock(value) for value in draw(st.lists(_TEXTS, max_size=1))]
            results = [result(one, draw(_TEXTS), is_error=draw(st.booleans())) for one in ids]
            messages.append(asked(*draw(st.permutations([*results, *words]))))
    if draw(st.booleans()):
        messages.append(UserMessage.of(draw(_TEXTS)))
    return tuple(messages)


def _is_whole(message: AssistantMessage, origin: Origin) -> bool:
    """An answer with something of ours in it goes back in words alone."""
    return all(block.raw is not None and block.raw.belongs_to(origin) for block in message.blocks)


@settings(max_examples=250, deadline=None)
@given(_conversations(), st.sampled_from([LEVELS, BUDGET, UNKNOWN]))
def test_whatever_the_history_the_service_takes_it(conversation: Conversation, info: ModelInfo) -> None:
    origin = ENDPOINT.origin(info.id)
    conversation = tuple(_reissued(message, info.id) for message in conversation)
    body = body_of(replace(PLAIN, model=info, conversation=conversation))
    assert broken_rules(body["contents"], signed_calls=info is not BUDGET) == []
    sent = [part for content in body["contents"] for part in content["parts"]]
    pieces = 0
    while pieces < len(conversation) and _pauses(conversation[-1 - pieces], info.id):
        pieces += 1
    issued = [
        raw(block, origin)
        for message in conversation[: len(conversation) - pieces]
        if isinstance(message, AssistantMessage) and _is_whole(message, origin)
        for block in message.blocks
    ]
    own = [part for part in issued if part.get("thoughtSignature")]
    assert [part for part in sent if part.get("thoughtSignature") not in (None, DUMMY)] == own
    assert ("continuationToken" in body) is bool(pieces)
    assert "continuation" not in json.dumps(body["contents"])


def _reissued(message: Message, model_id: str) -> Message:
    """What the default model issued, as if the given one had."""
    if isinstance(message, UserMessage):
        return message
    blocks = tuple(
        replace(block, raw=sealed(raw(block), model_id))
        if block.raw is not None and block.raw.belongs_to(ORIGIN)
        else block
        for block in message.blocks
    )
    return replace(message, blocks=blocks)


def _pauses(message: Message, model_id: str) -> bool:
    last = message.blocks[-1] if message.blocks else None
    return (
        isinstance(last, OpaqueBlock) and last.type == "continuation" and last.raw.belongs_to(ENDPOINT.origin(model_id))
    )


BROKEN: dict[str, list[Json]] = {
    "there are no contents": [],
    "the user has neither the first nor the last word": [model({"text": "a"})],
    "a content is empty": [user({"text": "a"}), model({"text": "b"}), user()],
    "a part is empty": [user({"text": "a"}), model({"text": "", "thought": True}), user({"text": "a"})],
    "the user calls a tool": [user(called("k")), user(answered("k"))],
    "a step is split": [user({"text": "a"}), model(called("k", "S")), model({"text": "b"}), user(answered("k"))],
    "answers stand beside other parts": [user(EMPTY), model(called("k", "S")), user(answered("k"), {"text": "a"})],
    "answers are not those to the calls, in their order": [
        user(EMPTY),
        model(called("k", "S"), called("l")),
        user(answered("l"), answered("k")),
    ],
    "a response is no object of output or error": [
        user(EMPTY),
        model(called("k", "S")),
        user({"functionResponse": {"id": "k", "name": "read_file", "response": "text"}}),
    ],
    "calls are left open": [user(EMPTY), model(called("k", "S"))],
    "the first call of a step of the running turn is not signed": [
        user(EMPTY),
        model(called("k")),
        user(answered("k")),
    ],
    "a stand-in for a signature where none is demanded": [
        user(EMPTY),
        model(called("k", "S"), called("l", DUMMY)),
        user(answered("k"), answered("l")),
    ],
}


@pytest.mark.parametrize("rule", BROKEN)
def test_the_checker_finds_what_is_wrong(rule: str) -> None:
    assert rule in broken_rules(BROKEN[rule], signed_calls=True)
