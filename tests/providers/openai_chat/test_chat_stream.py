"""Streams of chat completions: every recorded case, however it is cut, and rubbish that must only become an error."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chat_cases import (
    Answer,
    as_events,
    cases,
    chunk,
    expected,
    neutral,
    raw,
    run,
    run_chunks,
    server,
    server_of,
    stream,
)
from tests.support.sizes import examples
from thinklsp.core import errors
from thinklsp.core.stream import BlockDelta, MessageFinished, MessageStarted, TextDelta, ThinkingDelta

GOOD = cases(failing=False)
NOT_IN_THE_ANSWER = ("sdk", "server", "think_tags")


def outcome(case: str, chunks: list[bytes]) -> Answer | str:
    try:
        return run_chunks(chunks, server_of(case))
    except errors.ProviderError as error:
        return f"{type(error).__name__}: {error}"


@cache
def whole(case: str) -> Answer | str:
    return outcome(case, [stream(case)])


@pytest.mark.parametrize("case", GOOD)
def test_recorded_stream(case: str) -> None:
    wanted = {key: value for key, value in expected(case).items() if key not in NOT_IN_THE_ANSWER}
    answer = run(stream(case), server_of(case))
    assert neutral(answer) == wanted
    assert isinstance(answer.events[0], MessageStarted)
    assert [event for event in answer.events if isinstance(event, MessageFinished)] == [answer.events[-1]]
    if case != "think_tags_closed_but_never_opened":
        # What was shown while it came is what is kept.
        deltas = [event.delta for event in answer.events if isinstance(event, BlockDelta)]
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer.message.text
        assert "".join(delta.text for delta in deltas if isinstance(delta, ThinkingDelta)) == answer.message.thinking


@pytest.mark.parametrize("case", cases(failing=True))
def test_recorded_failure(case: str) -> None:
    wanted = expected(case)
    with pytest.raises(errors.ProviderError) as caught:
        run(stream(case), server_of(case))
    assert type(caught.value) is getattr(errors, wanted["error"])
    assert wanted["contains"] in str(caught.value)
    assert caught.value.retryable is wanted["retryable"]


def test_a_stream_cut_in_two_at_every_byte_is_the_same_answer() -> None:
    data = stream("ollama_short")
    for place in range(len(data) + 1):
        assert outcome("ollama_short", [data[:place], data[place:]]) == whole("ollama_short")


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from([*GOOD, *cases(failing=True)]), st.data())
def test_however_a_stream_is_cut_the_outcome_is_the_same(case: str, data: st.DataObject) -> None:
    content = stream(case)
    places = sorted(data.draw(st.sets(st.integers(0, len(content)), max_size=12)))
    chunks = [content[one:other] for one, other in zip([0, *places], [*places, len(content)], strict=True)]
    assert outcome(case, chunks) == whole(case)


def test_a_stream_that_ends_early_is_a_break_or_the_whole_answer() -> None:
    """Ended after any byte: nothing counts as an answer before the server has said why it stopped."""
    data = stream("ollama_short")
    reason = data.index(b'"finish_reason":"stop"') + len(b'"finish_reason":"stop"}]}')
    complete = run(data).message
    for place in range(len(data)):
        answer = outcome("ollama_short", [data[:place]])
        assert isinstance(answer, str) or answer.message == complete
        if place < reason:
            assert isinstance(answer, str)
            assert answer.startswith("StreamProtocolError")


def test_arguments_without_end_are_given_up() -> None:
    piece = chunk({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": "x" * 99_999}}]})
    assert run(as_events(*[piece] * 10, chunk(reason="length"))).message.tool_uses[0].input is None
    with pytest.raises(errors.StreamProtocolError, match="million characters") as caught:
        run(as_events(*[piece] * 11, chunk(reason="length")))
    assert not caught.value.retryable


def test_a_whole_body_of_json_is_an_answer_like_any_other() -> None:
    body = json.loads(stream("whole_message_as_one_event").removeprefix(b"data: "))
    pretty = json.dumps(body, indent=2).encode()
    assert run(pretty).message == run(stream("whole_message_as_one_event")).message


def test_keys_of_a_call_keep_their_order() -> None:
    assert list(raw(run(stream("signed_calls")).message.blocks[0])) == ["id", "type", "function", "extra_content"]


_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False)
_KEYS = st.sampled_from(
    [
        *("choices", "delta", "message", "content", "reasoning", "reasoning_content", "reasoning_details"),
        *("tool_calls", "function", "name", "arguments", "id", "index", "type", "text", "usage", "finish_reason"),
        *("error", "refusal"),
    ]
)
_WORDS = st.sampled_from(["stop", "length", "tool_calls", "", "reasoning.text", "text", "thinking", "<think>", "{}"])
_JSON = st.recursive(
    _SCALARS | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=15,
)
_DETAILS = st.lists(st.fixed_dictionaries({}, optional={"type": _WORDS, "index": _JSON, "text": _JSON, "id": _JSON}))
_CALLS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"index": _JSON, "id": _JSON, "function": st.dictionaries(_KEYS, _WORDS | _JSON, max_size=3)}
    ),
    max_size=3,
)
_DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": _JSON,
        "reasoning": _JSON,
        "reasoning_content": _JSON,
        "reasoning_details": _DETAILS | _JSON,
        "tool_calls": _CALLS | _JSON,
        "refusal": _JSON,
    },
)
_CHUNKS = st.builds(chunk, _DELTAS, _WORDS | _SCALARS)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(_CHUNKS | _JSON, max_size=6), st.booleans())
def test_rubbish_is_an_error_or_a_message_and_nothing_else(contents: list[Any], think_tags: bool) -> None:
    for data in (as_events(*contents), as_events(*contents, chunk(reason="stop"), end="")):
        try:
            answer = run(data, server(think_tags=think_tags), fits=False)
        except errors.ProviderError:
            continue
        assert all(block.raw is not None for block in answer.message.blocks)
        assert all(call.name for call in answer.message.tool_uses) or answer.message.stop_reason in (
            "max_tokens",
            "refusal",
        )
