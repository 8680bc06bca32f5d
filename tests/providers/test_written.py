"""What was written for one request is not written again for the next, and is the same as if all were new."""

from __future__ import annotations

import gc
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers.families import FAMILIES
from tests.providers.test_random_histories import histories
from tests.support.samples import asked, result, said
from tests.support.sizes import examples
from thinklsp.core.json_codec import encode_json
from thinklsp.core.messages import AssistantMessage, Conversation, TextBlock, ToolSpec, UserMessage
from thinklsp.providers import anthropic, chat_adapter, google, responses_adapter

MEMOS = [module.ENCODED_PARTS._memo for module in (anthropic, responses_adapter, google, chat_adapter)]
A = UserMessage.from_text("Begin.")


def encode(family: str, conversation: Conversation, model: str = "") -> bytes:
    samples = FAMILIES[family].samples
    asked_model = replace(samples.PLAIN.model, id=model or samples.PLAIN.model.id)
    request = replace(samples.PLAIN, conversation=conversation, model=asked_model)
    return FAMILIES[family].adapter.encode(request, samples.ENDPOINT).body


def anew(conversation: Conversation) -> Conversation:
    """The same value, of which nothing has been made yet."""
    return tuple(replace(message, blocks=tuple(map(replace, message.blocks))) for message in conversation)  # type: ignore[arg-type]


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from([*FAMILIES]).flatmap(histories), st.sampled_from([*FAMILIES]), st.integers(0, 3))
def test_a_growing_conversation_is_written_as_if_it_were_new(
    conversation: Conversation, family: str, start: int
) -> None:
    """By two models in turn, and without its beginning, as after a compaction."""
    for end in range(len(conversation) + 1):
        for part in ((A, *conversation[:end]), (A, *conversation[start:end])):
            for model in ("", "another"):
                body = encode(family, part, model)
                assert body == encode(family, part, model)
                assert body == encode(family, anew(part), model)
        assert body == encode_json(json.loads(body)), "as the plain writer of JSON has it"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_request_writes_what_is_new(family: str) -> None:
    """Growth in counts: the second half of a session writes as many pieces as the first."""
    conversation: Conversation = (A,)
    counts = []
    for number in range(40):
        call = FAMILIES[family].samples.call(f"c{number}")
        conversation += (said(call, stop="tool_use"), asked(result(call.id, "y" * 99)))
        before = count_kept(conversation)
        encode(family, conversation)
        counts.append(count_kept(conversation) - before)
    assert max(counts[20:]) <= max(counts[:20])


def count_kept(conversation: Conversation) -> int:
    """Return how many bytes are written for the parts of a conversation."""
    parts = [part for message in conversation for part in (message, *message.blocks)]
    known = [known for memo in MEMOS for part in parts if (known := memo.find(part)) is not None]
    return sum(len(value.json) for _, value in known)


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_tools_are_written_as_they_are(family: str) -> None:
    samples = FAMILIES[family].samples
    for value, text in ((1, b'"default":1}'), (True, b'"default":true}'), (1.0, b'"default":1.0}')):
        tool = ToolSpec("read", "Reads.", {"type": "object", "properties": {"n": {"default": value}}})
        request = replace(samples.PLAIN, conversation=(A,), tools=(tool, tool))
        assert FAMILIES[family].adapter.encode(request, samples.ENDPOINT).body.count(text) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_written_goes_with_the_conversation(family: str) -> None:
    gc.collect()
    before = [len(memo._entries) for memo in MEMOS]
    conversation: Conversation = (UserMessage.from_text("Begin."), AssistantMessage((TextBlock("Done."),)))
    encode(family, (*conversation, UserMessage.from_text("Again.")))
    assert [len(memo._entries) for memo in MEMOS] > before
    del conversation
    gc.collect()
    assert [len(memo._entries) for memo in MEMOS] == before
