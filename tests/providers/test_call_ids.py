"""Ids of calls as gateways give them: equal, empty, used before. Every service accepts the history all the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers.test_request_bodies import ADAPTERS, call_tools, read_answer, sent
from tests.support.sizes import examples
from thinklsp.core.messages import Conversation, ToolResultBlock, UserMessage, ensure_unique_call_ids

# The id of a call, and id and text of its result.
Pair = tuple[str | None, tuple[str | None, str]]
_IDS = st.sampled_from(["", "same", "same", "other", "same-2", "call", "call-1", "a|b", "a.b", "a_b", "é", "x" * 70])
_ANSWERS = st.lists(st.tuples(st.sampled_from([*ADAPTERS]), st.lists(_IDS, min_size=1, max_size=4)), max_size=4)


@settings(max_examples=examples(60), deadline=None)
@given(_ANSWERS)
def test_every_service_gets_unique_ids_each_with_its_own_result(answers: list[tuple[str, list[str]]]) -> None:
    """Calls with equal, empty or reused ids, within a message and across messages, of one service or several."""
    conversation: Conversation = (UserMessage.from_text("Go on."),)
    expected: list[str] = []
    for provider, ids in answers:
        message = ensure_unique_call_ids(read_answer(provider, call_tools(provider, ids)), conversation)
        assert len(message.tool_uses) == len(ids)
        texts = [f"result {len(expected) + place}" for place in range(len(ids))]
        results = [ToolResultBlock(call.id, text) for call, text in zip(message.tool_uses, texts, strict=True)]
        conversation = (*conversation, message, UserMessage(tuple(results)))
        expected += texts
    for provider in ADAPTERS:
        pairs = [*PAIRS[provider](sent(provider, conversation))]
        assert [call for call, _ in pairs] == [call for _, (call, _) in pairs]
        assert [text for _, (_, text) in pairs] == expected
        groups = [[call for call, _ in pairs]]
        if provider == "google":
            # Ids are optional there, and signed parts go back as they came: unique within each message.
            groups = [[call for call in group if call] for group in _by_message([ids for _, ids in answers], pairs)]
        assert all(all(group) and len(set(group)) == len(group) for group in groups)


def _by_message(answers: Sequence[Sequence[str]], pairs: Sequence[Pair]) -> Iterator[list[str | None]]:
    start = 0
    for ids in answers:
        yield [call for call, _ in pairs[start : start + len(ids)]]
        start += len(ids)


def _anthropic_pairs(body: Any) -> Iterator[Pair]:
    messages = [message["content"] for message in body["messages"]]
    for before, content in pairwise(messages):
        calls = [block["id"] for block in before if block["type"] == "tool_use"]
        results = [(b["tool_use_id"], b["content"]) for b in content if b["type"] == "tool_result"]
        yield from zip(calls, results, strict=True)


def _openai_pairs(body: Any) -> Iterator[Pair]:
    calls = [item["call_id"] for item in body["input"] if item["type"] == "function_call"]
    outputs = [(i["call_id"], i["output"]) for i in body["input"] if i["type"] == "function_call_output"]
    yield from zip(calls, outputs, strict=True)


def _google_pairs(body: Any) -> Iterator[Pair]:
    parts = [part for content in body["contents"] for part in content["parts"]]
    calls = [part["functionCall"].get("id") or None for part in parts if "functionCall" in part]
    answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
    yield from zip(calls, ((a.get("id") or None, a["response"]["output"]) for a in answers), strict=True)


def _chat_pairs(body: Any) -> Iterator[Pair]:
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    results = [(m["tool_call_id"], m["content"]) for m in body["messages"] if m["role"] == "tool"]
    yield from zip(calls, results, strict=True)


PAIRS = {
    "anthropic": _anthropic_pairs,
    "openai": _openai_pairs,
    "google": _google_pairs,
    "openai-compatible": _chat_pairs,
}
