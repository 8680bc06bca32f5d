"""Reasoning that comes back: what each server demands, takes and refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.simulator_chat_talk import ECHO, Talk, continued, request

MUST = "The reasoning_content in the thinking mode must be passed back to the API"
DEEPSEEK = "deepseek-reasoner"
CLAUDE = "anthropic/claude-opus-5.5"
ROUTED = [CLAUDE, "google/gemini-4-argon", "openai/gpt-6-sol", "somebody/else-1"]
REJECTED = {
    "anthropic": "Invalid `signature` in `thinking` block",
    "google": "Corrupted thought signature.",
    "openai": "invalid_encrypted_content",
}
THOUGHT = "First I think.And think again."


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("model", ECHO)
def test_a_tool_loop_that_brings_back_what_came_is_accepted(model: str, stream: bool) -> None:
    talk = Talk()
    body = request("loop", model)
    seen = []
    for _ in range(3):
        message, finish = talk.message(body, stream=stream)
        calls = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
        seen.append((message["content"] or "", calls, finish))
        body = continued(body, message)
    called = "stop" if model.startswith("lmstudio") else "tool_calls"
    assert seen == [
        ("Looking.", ['{"path": "a"}', "{}"], called),
        ("", ['{"path": "result 1"}'], called),
        ("Done with result 1.", [], "stop"),
    ]
    message, _ = talk.message(
        {**body, "messages": [*body["messages"], {"role": "user", "content": "plain"}]}, stream=stream
    )
    assert message["content"] == "Plain answer."


@pytest.mark.parametrize("model", ECHO)
def test_a_stream_comes_to_what_is_told_without_one(model: str) -> None:
    talk = Talk()
    whole, _ = talk.message(request("loop", model), stream=False)
    streamed, _ = talk.message(request("loop", model), stream=True)
    for message in (whole, streamed):
        for call in message["tool_calls"]:
            del call["id"]
        for detail in message.get("reasoning_details", ()):
            for name in ("signature", "data"):
                assert len(detail.pop(name, 100 * "x")) >= 100
        message["content"] = message["content"] or None
    assert streamed == {key: value for key, value in whole.items() if value is not None or key == "content"}
    reasoning = None if model == "plain-1" else THOUGHT
    field = ECHO[model] or "reasoning_content"
    assert whole.get("reasoning" if field == "reasoning_details" else field) == reasoning
    assert whole.get("reasoning_content" if field != "reasoning_content" else "reasoning") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"reasoning_content": None}, MUST),
        ({"reasoning_content": ""}, MUST),
        ({"reasoning_content": THOUGHT + " "}, MUST),
        ({"reasoning_content": "In between."}, MUST),
        ({"reasoning_content": 7}, "reasoning_content: invalid type"),
    ],
)
def test_deepseek_wants_its_reasoning_back_in_the_current_turn(changes: dict[str, Any], message: str | None) -> None:
    talk = Talk()
    body = request("loop", DEEPSEEK)
    answer, _ = talk.message(body, stream=True)
    again = continued(body, answer, **changes)
    if message is None:
        talk.good(again)
    else:
        assert message in talk.refused(again)


def test_deepseek_lets_the_reasoning_go_where_it_does_not_look_for_it() -> None:
    talk = Talk()
    body = request("loop", DEEPSEEK)
    answer, _ = talk.message(body, stream=True)
    bare = {key: value for key, value in answer.items() if key != "reasoning_content"}
    assert talk.refused(continued(body, bare)) == MUST
    talk.good(continued(body, bare) | {"thinking": {"type": "disabled"}})
    without_tools = continued(body, bare)
    del without_tools["tools"]
    talk.good(without_tools)
    talk.good(continued(body, bare, "plain"))  # a turn later


FOREIGN = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_x", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "call_x", "content": "ok"},
]


def foreign(model: str, **changes: Any) -> dict[str, Any]:
    """A conversation whose call another service made."""
    body = request("loop", model)
    return {**body, "messages": [*body["messages"], {**FOREIGN[0], **changes}, FOREIGN[1]]}


def test_deepseek_takes_an_empty_text_for_the_turns_of_others_and_no_text_of_theirs() -> None:
    talk = Talk()
    assert talk.refused(foreign(DEEPSEEK)) == MUST
    talk.good(foreign(DEEPSEEK, reasoning_content=""))
    assert talk.refused(foreign(DEEPSEEK, reasoning_content="Somebody else thought so.")) == MUST
    body = request("loop", DEEPSEEK)
    answer, _ = talk.message(body, stream=True)
    other = continued(body, answer) | {"model": "deepseek-chat"}
    assert talk.refused(other) == MUST
    other["messages"][2]["reasoning_content"] = ""
    talk.good(other)


def test_what_was_issued_stays_known_after_a_reset() -> None:
    for model in (DEEPSEEK, *ROUTED):
        talk = Talk()
        body = request("loop", model)
        answer = talk.good(body)["choices"][0]["message"]
        talk.dialect.reset()
        kept = {key: value for key, value in answer.items() if key != "reasoning"}
        messages = [*body["messages"], kept]
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in kept["tool_calls"]]
        talk.good({**body, "messages": messages})


Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def _swap(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return details[::-1]


def _cut(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return details[:-1]


def _behead(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return details[1:]


def _edit(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    name = "summary" if "summary" in details[0] else "text"
    return [{**details[0], name: "First I thought."}, *details[1:]]


def _bend(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    name = "signature" if "signature" in details[-1] else "data"
    return [*details[:-1], {**details[-1], name: details[-1][name].swapcase()}]


def _unseal(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in d.items() if key not in ("signature", "data")} for d in details]


def _renumber(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**d, "index": d["index"] + 1} for d in details]


def _double(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*details, *details]


@pytest.mark.parametrize("change", [_swap, _cut, _behead, _edit, _bend, _unseal, _renumber, _double])
@pytest.mark.parametrize("model", ROUTED)
def test_openrouter_refuses_details_that_are_not_as_they_were(model: str, change: Change) -> None:
    talk = Talk()
    body = request("loop", model)
    answer = talk.good(body)["choices"][0]["message"]
    again = [*body["messages"], {**answer, "reasoning_details": change(answer["reasoning_details"])}]
    again += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in answer["tool_calls"]]
    status, refusal = talk.ask({**body, "messages": again})
    error = refusal["error"]
    assert (status, error["code"], error["message"]) == (400, 400, "Provider returned error")
    vendor = model.partition("/")[0]
    modified = "cannot be modified"
    assert (
        REJECTED.get(vendor, REJECTED["anthropic"]) in error["metadata"]["raw"] or modified in error["metadata"]["raw"]
    )
    assert str(answer["reasoning_details"][0].get("signature", "§")) not in error["metadata"]["raw"]


@pytest.mark.parametrize(
    ("details", "accepted"),
    [
        ([], True),
        (None, True),
        ([{"type": "reasoning.server_tool_call", "data": "x"}], True),
        ([{"type": "reasoning.text", "text": "Elsewhere."}], False),
        ([{"type": "reasoning.encrypted", "data": "AAAA"}], False),
        ([{"type": "reasoning.song"}], False),
        (["x"], False),
        ("x", False),
    ],
)
def test_openrouter_and_details_that_it_did_not_issue(details: Any, accepted: bool) -> None:
    status, _ = Talk().ask(foreign(CLAUDE, reasoning_details=details))
    assert status == (200 if accepted else 400)


def test_openrouter_binds_details_to_model_and_key_and_does_not_demand_them() -> None:
    talk = Talk()
    body = request("loop", CLAUDE)
    answer, _ = talk.message(body, stream=True)
    again = continued(body, answer)
    assert REJECTED["anthropic"] in talk.refused(again, authorization="Bearer another")
    assert REJECTED["anthropic"] in talk.refused(again | {"model": "anthropic/claude-sonnet-5.5"})
    assert REJECTED["google"] in talk.refused(again | {"model": "google/gemini-4-argon"})
    del again["messages"][2]["reasoning_details"]
    talk.good(again)
    other = Talk()
    assert REJECTED["anthropic"] in other.refused(continued(body, answer)), "another server's seals"


@pytest.mark.parametrize("model", ROUTED)
def test_openrouter_tells_two_answers_apart_that_say_the_same(model: str) -> None:
    talk = Talk()
    body = request("loop", model)
    first, second = (talk.good(body)["choices"][0]["message"] for _ in range(2))
    mixed = [*first["reasoning_details"][:-1], second["reasoning_details"][-1]]
    again = [*body["messages"], {**first, "reasoning_details": mixed}]
    again += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in first["tool_calls"]]
    assert talk.refused({**body, "messages": again}).startswith("Provider returned error")


def test_encrypted_thinking_shares_the_index_of_the_readable_before_it() -> None:
    """Row 68."""
    expected = {
        CLAUDE: ["text 0", "encrypted 0", "text 1"],
        "google/gemini-4-argon": ["text 0", "encrypted 0", "encrypted 1", "text 2", "encrypted 2"],
        "openai/gpt-6-sol": ["summary 0", "encrypted 0", "encrypted 1", "summary 2", "encrypted 2"],
    }
    for model, kinds in expected.items():
        answer, _ = Talk().message(request("loop", model), stream=True)
        found = [f"{d['type'].removeprefix('reasoning.')} {d['index']}" for d in answer["reasoning_details"]]
        assert found == kinds


@pytest.mark.parametrize("model", [m for m in ECHO if not m.startswith(("deepseek", "strict"))])
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_servers_without_a_rule_take_or_ignore_reasoning(model: str, field: str) -> None:
    Talk().good(foreign(model, **{field: "Somebody thought so."}))


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "reasoning_details", "x_mine"])
def test_the_strict_gateway_refuses_any_echo(field: str) -> None:
    refusal = Talk().refused(foreign("strict-1", **{field: None}))
    assert refusal == f"messages.2.{field}: Extra inputs are not permitted"
    answer, _ = Talk().message(request("loop", "strict-1"), stream=True)
    assert answer["reasoning_content"] == THOUGHT, "delivered all the same"


def test_llama_cpp_does_not_think_behind_a_prefill() -> None:
    body = request("plain", "qwen3-8b")
    body["messages"].append({"role": "assistant", "content": "Sure,"})
    assert "prefill" in Talk().refused(body)
    Talk().good({**body, "chat_template_kwargs": {"enable_thinking": False}})
