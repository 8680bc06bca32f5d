"""Streams of generateContent: every recorded case, cut anywhere, and rubbish that must become nothing but an error."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.google_cases import (
    ORIGIN,
    as_stream,
    cases,
    chunk,
    expected,
    neutral,
    raw,
    run,
    run_pieces,
    stream,
)
from tests.support.sizes import examples
from thinklsp.core import errors
from thinklsp.core.messages import TextBlock, ThinkingBlock
from thinklsp.core.stream import BlockDelta, ThinkingDelta
from thinklsp.providers import service_errors
from thinklsp.providers.google.adapter import GoogleAdapter

GOOD = cases(failing=False)


def wanted(case: str) -> dict[str, Any]:
    value = {"inputs": [], **expected(case)}
    value.pop("sdk_agrees")
    return value


@pytest.mark.parametrize("case", GOOD)
def test_recorded_stream(case: str) -> None:
    message, usage, explanation = run(stream(case))
    assert neutral(message, usage, explanation) == wanted(case)
    for block in message.blocks:
        if isinstance(block, TextBlock | ThinkingBlock):
            assert block.text == raw(block)["text"]


@pytest.mark.parametrize("case", cases(failing=True))
def test_recorded_failure(case: str) -> None:
    failure = expected(case)
    with pytest.raises(errors.ProviderError) as caught:
        run(stream(case))
    kind = getattr(errors, failure["error"], None) or getattr(service_errors, failure["error"])
    assert type(caught.value) is kind
    assert failure["contains"] in str(caught.value)
    assert caught.value.retryable is failure["retryable"]
    assert caught.value.retry_after == failure.get("retry_after")


def test_a_stream_in_two_pieces_cut_at_every_byte() -> None:
    whole = stream("short")
    for place in range(len(whole) + 1):
        assert neutral(*run_pieces([whole[:place], whole[place:]])) == wanted("short")


def test_every_prefix_of_a_stream_is_a_break_and_never_an_answer() -> None:
    """Only the blank line behind the last event may be missing."""
    whole = stream("short")
    for place in range(len(whole) - 2):
        with pytest.raises(errors.StreamProtocolError):
            run(whole[:place])
    assert neutral(*run(whole[:-2])) == wanted("short")


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(GOOD), st.lists(st.integers(0, 2000), max_size=12))
def test_a_stream_in_any_pieces(case: str, places: list[int]) -> None:
    whole = stream(case)
    cuts = sorted({0, len(whole), *(place % (len(whole) + 1) for place in places)})
    pieces = [whole[start:end] for start, end in pairwise(cuts)]
    assert neutral(*run_pieces(pieces)) == wanted(case)


def test_keys_of_a_part_keep_their_order() -> None:
    message, _, _ = run(stream("thinking_then_tool"))
    assert list(raw(message.blocks[1])) == ["functionCall", "thoughtSignature"]
    assert list(raw(message.blocks[1])["functionCall"]) == ["id", "name", "args"]


def test_thoughts_tell_what_they_have_cost_so_far() -> None:
    decoder = GoogleAdapter().decoder()
    told = []
    for counted in (None, 40, 40, 52):
        usage = {} if counted is None else {"usageMetadata": {"thoughtsTokenCount": counted}}
        data = as_stream(chunk({"text": "x", "thought": True}) | usage).decode().removeprefix("data: ")
        told += [
            event.delta.tokens
            for event in decoder.feed("", data)
            if isinstance(event, BlockDelta) and isinstance(event.delta, ThinkingDelta)
        ]
    assert told == [None, 40, None, 12]


def test_nothing_counts_after_the_end() -> None:
    decoder = GoogleAdapter().decoder()
    decoder.feed("", as_stream(chunk({"text": "x"}, reason="STOP")).decode().removeprefix("data: "))
    assert decoder.finish()
    assert decoder.feed("", '{"error": {"code": 500}}') == []
    assert decoder.finish() == []


REFUSALS = [
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "ESCALATION", "MODEL_ARMOR"),
    *("PUP_LIMITED_DISABLED", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_OTHER", "IMAGE_RECITATION"),
]


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_refusal_names_its_reason_or_repeats_the_words(reason: str) -> None:
    message, _, explanation = run(as_stream(chunk({"text": "x"}, reason=reason)))
    assert message.stop_reason == "refusal"
    assert reason in (explanation or "")
    _, _, explanation = run(as_stream(chunk({"text": "x"}, reason=reason, finishMessage="Not this.")))
    assert explanation == "Not this."


_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False)
_KEYS = st.sampled_from(
    [
        *("candidates", "content", "parts", "text", "thought", "thoughtSignature", "functionCall", "name", "args"),
        *("finishReason", "finishMessage", "usageMetadata", "promptFeedback", "blockReason", "error", "index", "code"),
        *("thoughtsTokenCount", "continuationToken", "details", "willContinue", "id"),
    ]
)
_REASONS = st.sampled_from(["STOP", "MAX_TOKENS", "CONTINUATION", "SAFETY", "MALFORMED_RESPONSE", "NEW"])
_JSON = st.recursive(
    _SCALARS | _REASONS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=15,
)
_CHUNKS = st.builds(
    lambda parts, rest: {"candidates": [{"content": {"parts": parts}, **rest}]},
    st.lists(st.dictionaries(_KEYS, _JSON, max_size=4), max_size=3),
    st.dictionaries(st.sampled_from(["finishReason", "index", "continuationToken"]), _REASONS | _SCALARS, max_size=2),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(_CHUNKS | _JSON, max_size=5))
def test_rubbish_is_an_error_or_a_message_and_nothing_else(contents: list[Any]) -> None:
    for data in (as_stream(*contents), as_stream(*contents, chunk({"text": "end"}, reason="STOP"))):
        try:
            message, _, _ = run(data, ORIGIN)
        except errors.ProviderError:
            continue
        assert all(block.raw is not None for block in message.blocks)
