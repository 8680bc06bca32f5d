"""Whatever a client sends, the dialect answers; it never breaks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator_openai_refusals import CALL, OUTPUT, SAID, TOOL

from tests.support.simulator_openai_talk import Talk, continued, request, user
from tests.support.sizes import examples

_KEYS = [
    "type", "role", "content", "text", "id", "call_id", "name", "arguments", "output", "summary", "encrypted_content",
    "status", "phase", "effort", "strict", "parameters", "properties", "required", "reasoning", "tools", "mode", "x",
]  # fmt: skip
_WORDS = [
    "message", "user", "assistant", "developer", "input_text", "output_text", "input_image", "refusal", "reasoning",
    "summary_text", "function", "function_call", "function_call_output", "item_reference", "configuration_update",
    "additional_tools", "custom_tool_call", "object", "allowed_tools", "low", "call_1", "rs_1", "msg_1", "gAAAAAB",
]  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-2, 2) | st.text(max_size=5) | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5),
    max_leaves=10,
)
_TOP = [
    "input", "instructions", "tools", "tool_choice", "reasoning", "include", "text", "metadata", "stream", "store",
    "stream_options", "max_output_tokens", "temperature", "previous_response_id", "conversation", "prompt",
    "prompt_cache_options", "prompt_cache_key", "safety_identifier", "model", "background", "truncation",
]  # fmt: skip
_SCENARIO = '[[turn]]\n[[turn.step]]\nblock=[{thinking="Hm."},{text="{{user}}"},{raw={type="x"}, dialect="openai"}]'


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_deep_nesting_is_refused_or_read(depth: int) -> None:
    nested = b'{"items":' * depth + b"1" + b"}" * depth
    for tool in ({**TOOL, "strict": False, "parameters": "HERE"}, {"type": "web_search", "x": "HERE"}):
        body = json.dumps(request("plain", tools=[tool])).encode()
        assert Talk().ask(body.replace(b'"HERE"', nested))[0] in (200, 400)


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(st.sampled_from(_TOP), _JSON, min_size=1, max_size=3))
def test_no_body_breaks_the_dialect(changes: dict[str, Any]) -> None:
    reply = Talk(_SCENARIO).reply({**request("plain"), **changes})
    assert getattr(reply, "status", 200) in (200, 400, 404)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(_JSON | st.sampled_from([user("plain"), CALL, OUTPUT, SAID]), max_size=6), _JSON)
def test_no_item_breaks_the_dialect(items: list[Any], tool: Any) -> None:
    reply = Talk(_SCENARIO).reply(request("plain", "gpt-6.2-sol", input=items, tools=[TOOL, tool]))
    assert getattr(reply, "status", 200) in (200, 400, 404)


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_no_change_to_a_replay_breaks_the_dialect(data: st.DataObject) -> None:
    talk = Talk()
    body = request(model=data.draw(st.sampled_from(["gpt-6-sol", "gpt-6.2-sol"])))
    body = continued(body, talk.good(body))
    item = data.draw(st.sampled_from(body["input"]))
    item[data.draw(st.sampled_from(sorted(item)))] = data.draw(_JSON)
    assert getattr(talk.reply(body), "status", 200) in (200, 400, 404)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=4), st.sampled_from(_WORDS), st.booleans())
def test_nothing_that_a_scenario_dictates_breaks_the_dialect(raw: dict[str, Any], kind: str, store: bool) -> None:
    block = json.dumps({"raw": {**raw, "type": kind}, "dialect": "openai"})
    talk = Talk()
    talk.dialect._script.scenario = type(talk.dialect._script.scenario).model_validate(
        {"turn": [{"step": [{"block": [{"thinking": "Hm."}, json.loads(block), {"text": "Hi."}]}]}]}
    )
    body = request("plain", store=store)
    answer = talk.good(body)
    replayed = {**body, "input": [*body["input"], *answer["output"], user("go on")]}
    assert getattr(talk.reply(replayed), "status", 200) in (200, 400, 404)
    assert talk.events(body)[-1]["type"] == "response.completed"
