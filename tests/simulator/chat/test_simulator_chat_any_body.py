"""Whatever a client sends, the chat dialect answers; it never breaks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator_chat_refusals import CALL, CALLING, RESULT, USER

from tests.support.simulator_chat_talk import ECHO, TOOLS, Talk, request
from tests.support.sizes import examples

MODELS = st.sampled_from(sorted(ECHO))


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("model", ["compatible-1", "anthropic/claude-opus-5.5"])
def test_deep_nesting_is_refused_or_read(model: str, depth: int) -> None:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    told = {**USER, "role": "assistant", "reasoning_details": [{"type": "reasoning.text", "x": "HERE"}]}
    body = json.dumps(request("plain", model, tools=[{**TOOLS[0], "x": "HERE"}], messages=[USER, told, USER])).encode()
    assert Talk().ask(body.replace(b'"HERE"', nested))[0] in (200, 400)


_WORDS = ["text", "user", "assistant", "tool", "function", "none", "enabled", "reasoning.text", "call_1", "{}"]
_KEYS = ["type", "role", "content", "text", "name", "id", "function", "arguments", "effort", "max_tokens", "x"]
_KEYS += ["tool_calls", "tool_call_id", "reasoning_content", "reasoning_details", "signature", "data", "index"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner),
    max_leaves=8,
)
_BODY_KEYS = ["messages", "tools", "tool_choice", "thinking", "reasoning", "reasoning_effort", "reasoning_format"]
_BODY_KEYS += ["chat_template_kwargs", "max_tokens", "stream", "stream_options", "temperature", "enable_thinking"]


@settings(max_examples=examples(300), deadline=None)
@given(MODELS, st.dictionaries(st.sampled_from([*_BODY_KEYS, "model"]), _JSON, min_size=1, max_size=3))
def test_no_body_breaks_the_dialect(model: str, changes: dict[str, Any]) -> None:
    reply = Talk().reply(request("plain", model) | changes)
    assert getattr(reply, "status", 200) in (200, 400, 404)


@settings(max_examples=examples(300), deadline=None)
@given(MODELS, _JSON, _JSON, st.sampled_from(_KEYS))
def test_no_message_breaks_the_dialect(model: str, value: Any, later: Any, key: str) -> None:
    answer = {"role": "assistant", "content": "x", key: value}
    calling = {**CALLING, "tool_calls": [{**CALL, key: value}], key: later}
    for messages in ([USER, answer, {**USER, key: later}], [USER, calling, {**RESULT, key: value}], [value, later]):
        assert getattr(Talk().reply(request("plain", model, messages=messages)), "status", 200) in (200, 400)


@settings(max_examples=examples(100), deadline=None)
@given(MODELS, st.lists(_JSON, max_size=3))
def test_no_details_break_the_dialect(model: str, details: Any) -> None:
    messages = [USER, {"role": "assistant", "content": "x", "reasoning_details": details}, USER]
    assert getattr(Talk().reply(request("plain", model, messages=messages)), "status", 200) in (200, 400)
