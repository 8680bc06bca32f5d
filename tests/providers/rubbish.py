"""Contents of streams that look like those of each family and make no sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.support import chat_samples, google_samples

Strategy = st.SearchStrategy[Any]
_NOTHING: Strategy = st.just([])


@dataclass(frozen=True)
class Rubbish:
    """`opening` and `ending`: what makes a stream of such contents whole."""

    contents: Strategy
    opening: tuple[Any, ...] = ()
    ending: Strategy = _NOTHING


_SCALARS: Strategy = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False)


def sample(words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words.split(" "))


def build_json(keys: st.SearchStrategy[str], words: st.SearchStrategy[str]) -> Strategy:
    return st.recursive(
        _SCALARS | words,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=15,
    )


def build_anthropic() -> Rubbish:
    keys = sample("type index delta content_block message usage error text thinking content input")
    types = sample(
        "message_start content_block_start content_block_delta content_block_stop message_delta message_stop message "
        "error text thinking tool_use text_delta citations_delta"
    )
    value = build_json(keys, types)
    events = st.builds(lambda kind, rest: {**rest, "type": kind}, types, st.dictionaries(keys, value, max_size=5))
    return Rubbish(events | value, ({"type": "message_start", "message": {"model": "m"}},))


def build_openai() -> Rubbish:
    keys = sample(
        "type output_index item delta part response output usage error text object content summary id call_id name "
        "status content_index summary_index arguments"
    )
    types = sample(
        "response.output_item.added response.output_item.done response.output_text.delta response.output_text.done "
        "response.refusal.delta response.refusal.done response.reasoning_text.delta response.reasoning_text.done "
        "response.function_call_arguments.delta response.function_call_arguments.done "
        "response.reasoning_summary_text.delta response.reasoning_summary_part.done response.content_part.done "
        "response.completed response.incomplete response.created "
        "message reasoning function_call output_text summary_text web_search_call error"
    )
    value = build_json(keys, types)
    items = st.builds(
        lambda kind, rest: {**rest, "type": kind},
        sample("message reasoning function_call odd"),
        st.dictionaries(keys, value, max_size=4),
    )
    events = st.builds(
        lambda kind, rest, index, item: {"output_index": index, "item": item, **rest, "type": kind},
        types,
        st.dictionaries(keys, value, max_size=3),
        st.integers(0, 3),
        items,
    )
    ends = st.lists(items, max_size=3).map(
        lambda output: [{"type": "response.completed", "response": {"id": "r", "output": output}}]
    )
    return Rubbish(events | value, ending=ends)


def build_google() -> Rubbish:
    keys = sample(
        "candidates content parts text thought thoughtSignature functionCall name args finishReason finishMessage "
        "usageMetadata promptFeedback blockReason error index code thoughtsTokenCount continuationToken details "
        "willContinue id"
    )
    reasons = sample("STOP MAX_TOKENS CONTINUATION SAFETY MALFORMED_RESPONSE NEW")
    value = build_json(keys, reasons)
    chunks = st.builds(
        lambda parts, rest: {"candidates": [{"content": {"parts": parts}, **rest}]},
        st.lists(st.dictionaries(keys, value, max_size=4), max_size=3),
        st.dictionaries(sample("finishReason index continuationToken"), reasons | _SCALARS, max_size=2),
    )
    return Rubbish(chunks | value, ending=st.just([google_samples.chunk({"text": "end"}, reason="STOP")]))


def build_chat() -> Rubbish:
    keys = sample(
        "choices delta message content reasoning reasoning_content reasoning_details tool_calls function name "
        "arguments id index type text usage finish_reason error refusal"
    )
    words = st.just("") | sample("stop length tool_calls reasoning.text text thinking <think> {}")
    value = build_json(keys, words)
    details = st.fixed_dictionaries({}, optional={"type": words, "index": value, "text": value, "id": value})
    function = st.dictionaries(keys, words | value, max_size=3)
    calls = st.fixed_dictionaries({}, optional={"index": value, "id": value, "function": function})
    fields = dict.fromkeys(("content", "reasoning", "reasoning_content", "refusal"), value)
    lists = {"reasoning_details": st.lists(details) | value, "tool_calls": st.lists(calls, max_size=3) | value}
    deltas = st.fixed_dictionaries({}, optional={**fields, **lists})
    chunks = st.builds(chat_samples.chunk, deltas, words | _SCALARS)
    return Rubbish(chunks | value, ending=st.just([chat_samples.chunk(reason="stop")]))


RUBBISH: Mapping[str, Rubbish] = {
    "anthropic": build_anthropic(),
    "openai": build_openai(),
    "google": build_google(),
    "chat": build_chat(),
}
