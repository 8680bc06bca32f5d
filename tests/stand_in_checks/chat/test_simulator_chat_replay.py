"""The chat dialect: reasoning that comes back, the wire habits of each server, its usage and its ways to fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.stand_in_checks.chat_talk import ECHO, Talk, continued, merged, request

MUST = "The reasoning_content in the thinking mode must be passed back to the API"
DEEPSEEK = "deepseek-reasoner"
CLAUDE = "anthropic/claude-opus-5.5"
ROUTED = [CLAUDE, "google/gemini-4-argon", "openai/gpt-6-sol", "somebody/else-1"]
BAD_SIGNATURE = "Invalid `signature` in `thinking` block"
REJECTED = {"google": "Corrupted thought signature.", "openai": "invalid_encrypted_content"}
THOUGHT = "First I think.And think again."


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
    talk, body, answer = start_loop(DEEPSEEK)
    again = continued(body, answer, **changes)
    if message is None:
        talk.good(again)
    else:
        assert message in talk.refused(again)


def test_deepseek_needs_reasoning_only_in_the_running_turn() -> None:
    talk, body, answer = start_loop(DEEPSEEK)
    bare = {key: value for key, value in answer.items() if key != "reasoning_content"}
    assert talk.refused(continued(body, bare)) == MUST
    talk.good(continued(body, bare) | {"thinking": {"type": "disabled"}})
    without_tools = continued(body, bare)
    del without_tools["tools"]
    talk.good(without_tools)
    talk.good(continued(body, bare, "plain"))  # a turn later


def start_loop(model: str) -> tuple[Talk, dict[str, Any], dict[str, Any]]:
    """A request and the message that answers it."""
    talk, body = Talk(), request("loop", model)
    return talk, body, talk.message(body, stream=True)[0]


def foreign(model: str, **changes: Any) -> dict[str, Any]:
    """A conversation whose call another service made."""
    body = request("loop", model)
    call = {"id": "call_x", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call], **changes}
    result = {"role": "tool", "tool_call_id": "call_x", "content": "ok"}
    return {**body, "messages": [*body["messages"], calling, result]}


def test_deepseek_takes_only_empty_reasoning_for_foreign_turns() -> None:
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


Details = list[dict[str, Any]]


def edit_text(details: Details) -> Details:
    name = "summary" if "summary" in details[0] else "text"
    return [{**details[0], name: "First I thought."}, *details[1:]]


def bend_seal(details: Details) -> Details:
    name = "signature" if "signature" in details[-1] else "data"
    return [*details[:-1], {**details[-1], name: details[-1][name].swapcase()}]


def unseal(details: Details) -> Details:
    return [{key: value for key, value in d.items() if key not in ("signature", "data")} for d in details]


CHANGES: dict[str, Callable[[Details], Details]] = {
    "swap": lambda details: details[::-1],
    "cut": lambda details: details[:-1],
    "behead": lambda details: details[1:],
    "edit": edit_text,
    "bend": bend_seal,
    "unseal": unseal,
    "renumber": lambda details: [{**d, "index": d["index"] + 1} for d in details],
    "double": lambda details: details * 2,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("model", ROUTED)
def test_openrouter_refuses_details_that_are_not_as_they_were(model: str, change: str) -> None:
    talk = Talk()
    body = request("loop", model)
    answer = talk.good(body)["choices"][0]["message"]
    again = [*body["messages"], {**answer, "reasoning_details": CHANGES[change](answer["reasoning_details"])}]
    again += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in answer["tool_calls"]]
    status, refusal = talk.ask({**body, "messages": again})
    error = refusal["error"]
    assert (status, error["code"], error["message"]) == (400, 400, "Provider returned error")
    expected = REJECTED.get(model.partition("/")[0], BAD_SIGNATURE)
    assert expected in error["metadata"]["raw"] or "cannot be modified" in error["metadata"]["raw"]
    assert str(answer["reasoning_details"][0].get("signature", "§")) not in error["metadata"]["raw"]


def test_openrouter_binds_details_to_model_and_key() -> None:
    talk, body, answer = start_loop(CLAUDE)
    again = continued(body, answer)
    assert BAD_SIGNATURE in talk.refused(again, authorization="Bearer another")
    assert BAD_SIGNATURE in talk.refused(again | {"model": "anthropic/claude-sonnet-5.5"})
    assert REJECTED["google"] in talk.refused(again | {"model": "google/gemini-4-argon"})
    del again["messages"][2]["reasoning_details"]
    talk.good(again)
    assert BAD_SIGNATURE in Talk().refused(continued(body, answer)), "another server's seals"


def test_encrypted_thinking_shares_the_index_before_it() -> None:
    expected = {
        CLAUDE: ["text 0", "encrypted 0", "text 1"],
        "google/gemini-4-argon": ["text 0", "encrypted 0", "encrypted 1", "text 2", "encrypted 2"],
        "openai/gpt-6-sol": ["summary 0", "encrypted 0", "encrypted 1", "summary 2", "encrypted 2"],
    }
    for model, kinds in expected.items():
        answer, _ = Talk().message(request("loop", model), stream=True)
        found = [f"{d['type'].removeprefix('reasoning.')} {d['index']}" for d in answer["reasoning_details"]]
        assert found == kinds


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "reasoning_details", "x_mine"])
def test_the_strict_gateway_refuses_any_echo(field: str) -> None:
    refusal = Talk().refused(foreign("strict-1", **{field: None}))
    assert refusal == f"messages.2.{field}: Extra inputs are not permitted"
    answer, _ = Talk().message(request("loop", "strict-1"), stream=True)
    assert answer["reasoning_content"] == THOUGHT, "delivered all the same"


STEP = "[[turn]]\n[[turn.step]]\n"
CALL = f'{STEP}block=[{{tool="read_file",input={{path="a long path to cut"}}}},{{tool="list_files"}}]'
ANSWER = 'block=[{thinking="Some thinking here."},{text="And an answer."}]\n'


def calls(model: str) -> list[dict[str, Any]]:
    deltas = [choice["delta"] for chunk in Talk(CALL).chunks(request(model=model)) for choice in chunk["choices"]]
    return [piece for delta in deltas for piece in delta.get("tool_calls") or ()]


def test_lm_studio_repeats_id_and_name_under_index_0() -> None:
    pieces = calls("lmstudio-x")
    assert [piece["index"] for piece in pieces] == [0] * 5
    assert [piece["function"]["name"] for piece in pieces] == ["read_file"] * 3 + ["list_files"] * 2
    assert len({piece["id"] for piece in pieces}) == 2
    assert all(piece["id"].isdigit() for piece in pieces)
    assert merged(Talk(CALL).chunks(request(model="lmstudio-x")))[1] == "stop"


def test_a_server_without_indexes() -> None:
    assert all("index" not in piece for piece in calls("plain-1"))


@pytest.mark.parametrize("text", ['{"path": "a', "", "no JSON"])
def test_broken_arguments_go_out_as_they_stand(text: str) -> None:
    scenario = f"{STEP}stop_reason='max_tokens'\nblock=[{{tool='read_file',input_json='{text}'}}]"
    for model in ECHO:
        for stream in (True, False):
            message, finish = Talk(scenario).message(request(model=model), stream=stream)
            assert message["tool_calls"][0]["function"] == {"name": "read_file", "arguments": text}
            assert finish == "length"


def test_raw_deltas_of_this_dialect_are_sent_unchanged() -> None:
    scenario = (
        f"{STEP}block=[{{raw={{reasoning='a',reasoning_content='a'}},dialect='openai-compatible'}},{{text='One'}},"
        "{raw={content=[{type='text',text='two'}]},dialect='openai-compatible'},{raw={type='server_tool_use'}}]"
    )
    for model in ("compatible-1", "gpt-oss:20b", "strict-1"):
        found = [chunk["choices"][0]["delta"] for chunk in Talk(scenario).chunks(request(model=model))]
        assert {"reasoning": "a", "reasoning_content": "a"} in found
        assert {"content": [{"type": "text", "text": "two"}]} in found
        assert "server_tool_use" not in json.dumps(found)
    message = Talk(scenario).good(request())["choices"][0]["message"]
    assert (message["reasoning"], message["reasoning_content"]) == ("a", "a")


BROKEN = f'{STEP}fault={{error_event={{type="overloaded_error",message="Overloaded",after_events=3}}}}\n{ANSWER}'


@pytest.mark.parametrize(
    ("model", "last"),
    [
        ("compatible-1", 'data: {"error":{"message":"Overloaded","type":"server_error","param":null,"code":null}}\n\n'),
        ("qwen3-8b", 'data: {"error":{"code":503,"message":"Overloaded","type":"server_error"}}\n\n'),
        ("llama-old-7b", 'error: {"code":503,"message":"Overloaded","type":"server_error"}\n\n'),
        ("lmstudio-x", 'event: error\ndata: {"error":{"message":"Overloaded","type":"server_error",'),
        ("plain-1", 'data: {"error":"Overloaded"}\n\n'),
        ("vllm-x", 'data: {"error":{"message":"Overloaded","type":"InternalServerError","param":null,"code":503}}\n\n'),
    ],
)
def test_errors_in_mid_stream(model: str, last: str) -> None:
    lines = Talk(BROKEN).lines(request(model=model))
    assert len(lines) == 4
    assert lines[-1].startswith(last)
    assert "[DONE]" not in "".join(lines)


def test_ollama_fails_with_an_empty_chunk_and_nothing_more() -> None:
    lines = Talk(BROKEN).lines(request(model="gpt-oss:20b"))
    choice = json.loads(lines[-1].removeprefix("data: "))["choices"][0]
    assert (choice["delta"], choice["finish_reason"]) == ({"role": "assistant", "content": ""}, None)
    assert "error" not in lines[-1]
    assert len(lines) == 4


def test_prompts_of_claude_are_cached_up_to_a_mark_only() -> None:
    plain, talk = request("plain", "anthropic/claude-opus-5.5"), Talk()

    def cached(body: dict[str, Any]) -> tuple[int, int]:
        usage = talk.good(body)["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]

    assert [cached(plain)[0] for _ in range(2)] == [0, 0]
    *head, last = plain["messages"]
    part = {"type": "text", "text": last["content"], "cache_control": {"type": "ephemeral"}}
    marked = {**plain, "messages": [*head, {**last, "content": [part]}]}
    tokens, prompt = cached(marked)
    assert (tokens, cached(marked)[0]) == (0, prompt)
    assert cached(plain)[0] == 0
