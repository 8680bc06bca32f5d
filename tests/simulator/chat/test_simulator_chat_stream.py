"""What stands on the wire: the habits of each server that a client has to cope with, and its ways to fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.simulator_chat_talk import ECHO, Talk, merged, parsed, request
from thinklsp.simulator.dialect import Cut, Send, Streamed, Wait, Whole

STEP = "[[turn]]\n[[turn.step]]\n"
CALL = f'{STEP}block=[{{tool="read_file",input={{path="a long path to cut"}}}},{{tool="list_files"}}]'
ANSWER = 'block=[{thinking="Some thinking here."},{text="And an answer."}]\n'


def deltas(chunks: list[Any], key: str) -> list[Any]:
    return [c["choices"][0]["delta"][key] for c in chunks if c["choices"] and c["choices"][0]["delta"].get(key)]


def calls(model: str) -> list[dict[str, Any]]:
    return [piece for pieces in deltas(Talk(CALL).chunks(request(model=model)), "tool_calls") for piece in pieces]


def test_calls_open_once_and_go_on_in_pieces() -> None:
    for model in ("compatible-1", "qwen3-8b", "deepseek-chat", "anthropic/claude-opus-5.5", "vllm-x", "strict-1"):
        first, *rest = calls(model)
        assert (first["index"], first["function"]) == (0, {"name": "read_file", "arguments": ""})
        assert first["id"]
        assert "id" not in rest[0]
        assert "name" not in rest[0]["function"]
        assert [piece["index"] for piece in rest] == [0, 0, 1, 1]


def test_ollama_tells_a_call_in_one_chunk() -> None:
    found = [(piece["index"], json.loads(piece["function"]["arguments"])) for piece in calls("gpt-oss:20b")]
    assert found == [(0, {"path": "a long path to cut"}), (1, {})]


def test_lm_studio_repeats_id_and_name_under_index_0_and_says_stop() -> None:
    """Rows 62 to 64."""
    pieces = calls("lmstudio-x")
    assert [piece["index"] for piece in pieces] == [0] * 5
    assert [piece["function"]["name"] for piece in pieces] == ["read_file"] * 3 + ["list_files"] * 2
    assert len({piece["id"] for piece in pieces}) == 2
    assert all(piece["id"].isdigit() for piece in pieces)
    assert merged(Talk(CALL).chunks(request(model="lmstudio-x")))[1] == "stop"


def test_a_server_without_indexes() -> None:
    """Row 63."""
    assert all("index" not in piece for piece in calls("plain-1"))


@pytest.mark.parametrize("text", ['{"path": "a', "", "no JSON"])
def test_broken_arguments_go_out_as_they_stand(text: str) -> None:
    """Row 73."""
    scenario = f"{STEP}stop_reason='max_tokens'\nblock=[{{tool='read_file',input_json='{text}'}}]"
    for model in ECHO:
        for stream in (True, False):
            message, finish = Talk(scenario).message(request(model=model), stream=stream)
            assert message["tool_calls"][0]["function"] == {"name": "read_file", "arguments": text}
            assert finish == "length"


@pytest.mark.parametrize(
    ("ending", "finish"),
    [
        ("stop_reason='max_tokens'", "length"),
        ("stop_reason='context_window'", "length"),
        ("stop_reason='stop_sequence'\nstop_sequence='END'", "stop"),
        ("stop_reason='pause_turn'", "stop"),
        ("stop_reason='refusal'\nrefusal={category='cyber',explanation='No.'}", "content_filter"),
        ("", "stop"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_finish_reasons(ending: str, finish: str, stream: bool) -> None:
    message, found = Talk(f"{STEP}{ending}\n{ANSWER}").message(request(), stream=stream)
    assert (found, message.get("refusal")) == (finish, "No." if finish == "content_filter" else None)


def test_openrouter_tells_the_vendors_own_reason_and_a_price() -> None:
    for model, native in (
        ("anthropic/x", "end_turn"),
        ("google/x", "STOP"),
        ("openai/x", "completed"),
        ("a/b", "stop"),
    ):
        talk = Talk()
        chunks = talk.chunks(request("plain", model))
        assert chunks[-2]["choices"][0]["native_finish_reason"] == native
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["cost"] > 0
        assert talk.lines(request("plain", model))[0] == ": OPENROUTER PROCESSING\n\n"


def test_opening_and_closing_chunks() -> None:
    openings = {
        "compatible-1": {"role": "assistant", "content": ""},
        "qwen3-8b": {"role": "assistant", "content": None},
    }
    for model in ECHO:
        chunks = Talk().chunks(request("plain", model))
        first, last = chunks[0]["choices"][0], [c["choices"][0] for c in chunks if c["choices"]][-1]
        assert first["delta"].items() >= openings.get(model, {"role": "assistant"}).items()
        assert last["finish_reason"] == "stop"
        assert last["delta"] == ({"role": "assistant", "content": ""} if "/" in model else {})
        assert ("timings" in chunks[-1]) is (model.startswith(("qwen", "llama")))
        assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    named = [c["choices"][0]["delta"].get("role") for c in Talk().chunks(request("plain", "gpt-oss:20b"))]
    assert named == ["assistant"] * (len(named) - 1) + [None]


def test_raw_deltas_go_out_as_they_stand_and_those_of_others_do_not() -> None:
    """Rows 65 and 66 are such deltas."""
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


def test_summaries_omissions_and_encrypted_thinking() -> None:
    block = "block=[{thinking='long',summary='short'},{thinking='x',omitted=true},{redacted_thinking='y'},{text='A'}]"
    for model, field in ECHO.items():
        message, _ = Talk(f"{STEP}{block}").message(request(model=model), stream=True)
        read = message.get("reasoning") or message.get("reasoning_content")
        assert read == (None if model == "plain-1" else "short")
        if field == "reasoning_details":
            assert sum("signature" in d or "data" in d for d in message["reasoning_details"]) == 3


def test_hidden_thinking_takes_its_time() -> None:
    scenario = f"{STEP}pacing={{chunk_chars=4,interval_ms=20}}\nblock=[{{thinking='{'x' * 40}',omitted=true}}]"
    for model in ("compatible-1", "anthropic/claude-opus-5.5"):
        reply = Talk(scenario).reply(request(model=model, stream=True))
        assert isinstance(reply, Streamed)
        assert sum(frame.ms for frame in reply.frames if isinstance(frame, Wait)) == 200


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


def test_openrouter_fails_inside_a_chunk() -> None:
    *_, last = Talk(BROKEN).lines(request(model="anthropic/x"))
    chunk = json.loads(last.removeprefix("data: "))
    assert chunk["error"] == {"code": 503, "message": "Overloaded", "metadata": {"error_type": "server_error"}}
    assert chunk["choices"][0]["finish_reason"] == "error"
    status, body = Talk(BROKEN).ask(request(model="anthropic/x"))
    assert (status, body["error"]["code"]) == (200, 503), "without a stream it has answered 200 by then"


def test_ollama_fails_with_an_empty_chunk_and_nothing_more() -> None:
    """Row 69."""
    lines = Talk(BROKEN).lines(request(model="gpt-oss:20b"))
    choice = json.loads(lines[-1].removeprefix("data: "))["choices"][0]
    assert (choice["delta"], choice["finish_reason"]) == ({"role": "assistant", "content": ""}, None)
    assert "error" not in lines[-1]
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("status", "given", "error"),
    [
        (401, "", {"type": "invalid_request_error", "code": "invalid_api_key"}),
        (402, "", {"type": "insufficient_quota", "message": "Insufficient Balance"}),
        (429, "", {"type": "requests", "code": "rate_limit_exceeded"}),
        (503, ', type="overloaded_error", message="Busy"', {"type": "server_error", "message": "Busy"}),
        (529, "", {"type": "server_error"}),
        (400, ', type="exceed_context_size_error"', {"type": "exceed_context_size_error"}),
    ],
)
def test_scripted_errors_speak_openai(status: int, given: str, error: dict[str, Any]) -> None:
    talk = Talk(f'{STEP}fault={{http_error={{status={status}{given}, headers={{Retry-After="3"}}}}}}\n{ANSWER}')
    for stream in (True, False):
        reply = talk.reply(request(stream=stream))
        assert isinstance(reply, Whole)
        assert (reply.status, reply.headers["retry-after"], reply.played) == (status, "3", "turn 1, step 1")
        assert json.loads(reply.body)["error"].items() >= error.items()


def test_a_body_of_any_text() -> None:
    reply = Talk(f'{STEP}fault={{http_error={{status=502, body="<html>"}}}}\n{ANSWER}').reply(request())
    assert isinstance(reply, Whole)
    assert (reply.status, reply.body, reply.headers["content-type"]) == (502, b"<html>", "text/html; charset=utf-8")


def test_a_fault_strikes_as_often_as_it_says() -> None:
    talk = Talk(f"{STEP}fault={{times=2, http_error={{status=503}}}}\n{ANSWER}")
    assert [talk.ask(request())[0] for _ in range(3)] == [503, 503, 200]


def test_cuts_and_silence() -> None:
    for model in ECHO:
        cut = Talk(f"{STEP}fault={{cut_after_events=2, cut_cleanly=false}}\n{ANSWER}").reply(
            request(model=model, stream=True)
        )
        assert isinstance(cut, Streamed)
        assert cut.frames[-1] == Cut(False)
        assert sum(isinstance(frame, Send) and frame.counted for frame in cut.frames) == 2
        quiet = Talk(f"{STEP}pacing={{ping_every_ms=10}}\nfault={{silence_ms=70}}\n{ANSWER}").reply(
            request(model=model, stream=True)
        )
        assert isinstance(quiet, Streamed)
        assert [frame for frame in quiet.frames if isinstance(frame, Wait)] == [Wait(70)]
        assert (quiet.ping[:1], quiet.ping[-2:], quiet.ping_every_ms) == (b":", b"\n\n", 10)
    gone = Talk(f"{STEP}fault={{cut_after_events=2}}\n{ANSWER}").reply(request())
    assert isinstance(gone, Whole)
    assert gone.cut


def test_text_goes_out_unescaped_and_half_a_surrogate_does_no_harm() -> None:
    talk = Talk(f'{STEP}block=[{{text="a\\u2028b é {{{{user}}}}"}}]')
    line = "".join(talk.lines(request("hm")))
    assert "a\u2028b é hm" in line.replace('"}', "")
    lines = talk.lines(request("\ud800"))
    assert merged(parsed(lines))[0]["content"] == "a\u2028b é \ud800"
