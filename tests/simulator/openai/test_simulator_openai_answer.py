"""What an accepted request is answered with: items, events, endings and faults."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulator_openai_talk import MODEL, Talk, request, user
from thinklsp.simulator.dialect import Cut, Send, Streamed, Wait, Whole

STEP = "[[turn]]\n[[turn.step]]\n"
LOOKING = (
    "created in_progress"
    " output_item.added reasoning_summary_part.added reasoning_summary_text.delta reasoning_summary_text.done"
    " reasoning_summary_part.done reasoning_summary_part.added reasoning_summary_text.delta"
    " reasoning_summary_text.done reasoning_summary_part.done output_item.done"
    " output_item.added output_item.done"
    " output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done"
    " output_item.added reasoning_summary_part.added reasoning_summary_text.delta reasoning_summary_text.done"
    " reasoning_summary_part.done output_item.done"
    " output_item.added function_call_arguments.delta function_call_arguments.done output_item.done"
    " output_item.added function_call_arguments.delta function_call_arguments.done output_item.done"
    " completed"
)
IDS = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_"}


def names(events: list[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def kinds(answer: dict[str, Any]) -> list[str]:
    return [item["type"] for item in answer["output"]]


def test_the_events_of_an_answer_and_what_they_add_up_to() -> None:
    events = Talk().events(request())
    assert names(events) == LOOKING.split()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    head, response = events[0]["response"], events[-1]["response"]
    assert (head["status"], head["output"], head["usage"]) == ("in_progress", [], None)
    assert (response["status"], response["error"], response["incomplete_details"]) == ("completed", None, None)
    assert response["id"] == head["id"]
    assert response["id"].startswith("resp_")
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["item"] for event in done] == response["output"]
    assert [event["output_index"] for event in done] == list(range(6))
    for added, item in zip(_added(events), response["output"], strict=True):
        assert item["id"] == added["id"]
        assert item["id"].startswith(IDS[item["type"]])
        _check_pieces([event for event in events if event.get("item_id") == item["id"]], added, item)


def _added(events: list[Any]) -> list[Any]:
    return [event["item"] for event in events if event["type"] == "response.output_item.added"]


def _check_pieces(events: list[Any], added: dict[str, Any], item: dict[str, Any]) -> None:
    deltas = "".join(event["delta"] for event in events if event["type"].endswith(".delta"))
    assert all(event["obfuscation"] for event in events if event["type"].endswith(".delta"))
    match item["type"]:
        case "reasoning":
            assert deltas == "".join(part["text"] for part in item["summary"])
            assert added["summary"] == []
            assert item["encrypted_content"].startswith(added["encrypted_content"])
            assert len(added["encrypted_content"]) < len(item["encrypted_content"])
        case "message":
            assert deltas == item["content"][0]["text"]
            assert (added["content"], added["status"], item["status"]) == ([], "in_progress", "completed")
        case _:
            assert deltas == item["arguments"]
            assert (added["arguments"], added["status"], item["status"]) == ("", "in_progress", "completed")


def test_without_a_stream_the_same_response_comes_at_once() -> None:
    talk = Talk()
    whole, streamed = talk.good(request("plain")), talk.events(request("plain"))[-1]["response"]
    assert kinds(whole) == kinds(streamed) == ["reasoning", "message"]
    assert whole.keys() == streamed.keys()
    assert whole["usage"] == streamed["usage"]
    assert whole["output"][0]["summary"] == [{"type": "summary_text", "text": "Plain thinking."}]


def test_obfuscation_can_be_switched_off() -> None:
    events = Talk().events(request("plain", stream_options={"include_obfuscation": False}))
    assert not any("obfuscation" in event for event in events)


@pytest.mark.parametrize("include", [[], ["reasoning.encrypted_content"]])
def test_reasoning_is_readable_only_where_asked_and_encrypted_always(include: list[str]) -> None:
    talk = Talk()
    for reasoning, texts in (({"effort": "low"}, []), ({"summary": "auto"}, ["First I think.", "Then I plan."])):
        first, second, *_ = talk.good(request(reasoning=reasoning, include=include))["output"]
        assert [part["text"] for part in first["summary"]] == texts
        assert second["summary"] == []
        assert len(first["encrypted_content"]) > 200


@pytest.mark.parametrize(
    ("model", "phases"),
    [
        (MODEL, ["commentary", "final_answer"]),
        ("gpt-5.4", ["commentary", "final_answer"]),
        ("gpt-5.2", [None, None]),
    ],
)
def test_phases_tell_commentary_from_the_answer(model: str, phases: list[str | None]) -> None:
    talk = Talk()
    seen = []
    for prompt in ("loop", "plain"):
        output = talk.good(request(prompt, model))["output"]
        seen += [item.get("phase") for item in output if item["type"] == "message"]
    assert seen == phases


def test_effort_none_and_a_configuration_update_switch_reasoning() -> None:
    talk = Talk()
    body = request(reasoning={"effort": "none"})
    assert kinds(talk.good(body)) == ["message", "function_call", "function_call"]
    update = {"type": "configuration_update", "reasoning": {"effort": "low"}}
    answer = talk.good({**body, "input": [update, user("plain")]})
    assert kinds(answer) == ["reasoning", "message"]


def test_a_response_repeats_the_settings_in_effect() -> None:
    tool = {"type": "function", "name": "x", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
    answer = Talk().good(request("plain", "gpt-5.4", reasoning=None, tools=[tool], max_output_tokens=99))
    assert answer["reasoning"] == {"effort": "none", "summary": None}
    assert (answer["store"], answer["max_output_tokens"], answer["tool_choice"]) == (False, 99, "auto")
    assert answer["tools"] == [{**tool, "description": None, "strict": False}]


ENDINGS = [
    ("max_tokens", '{text="Hm"},{tool="read_file", input_json=\'{"path": "a\'}', "incomplete", "max_output_tokens"),
    ("context_window", '{text="Hm"}', "incomplete", "max_output_tokens"),
    ("refusal", "", "incomplete", "content_filter"),
    ("refusal", '{text="Well,"}', "completed", None),
    ('stop_sequence"\nstop_sequence="END', '{text="Well,"}', "completed", None),
    ("pause_turn", '{text="Well,"}', "completed", None),
]


@pytest.mark.parametrize(("reason", "blocks", "status", "details"), ENDINGS)
def test_endings(reason: str, blocks: str, status: str, details: str | None) -> None:
    talk = Talk(f'{STEP}stop_reason="{reason}"\nblock=[{blocks}]')
    events = talk.events(request())
    response = events[-1]["response"]
    assert names(events)[-1] == response["status"] == status
    assert (response["incomplete_details"] or {}).get("reason") == details
    statuses = [item["status"] for item in response["output"]]
    if details == "max_output_tokens":
        assert statuses == ["completed"] * (len(statuses) - 1) + ["incomplete"]
        assert response["output"][-1].get("arguments") in (None, '{"path": "a')
    else:
        assert set(statuses) <= {"completed"}
    assert talk.good(request())["status"] == status


def test_a_refusal_is_a_part_of_its_own_with_the_explanation() -> None:
    talk = Talk(f'{STEP}stop_reason="refusal"\nrefusal={{explanation="Not this."}}\nblock=[{{text="Well,"}}]')
    events = talk.events(request())
    said, refused = events[-1]["response"]["output"]
    assert said["content"][0]["text"] == "Well,"
    assert refused["content"] == [{"type": "refusal", "refusal": "Not this."}]
    told = [event for event in events if event.get("item_id") == refused["id"]]
    assert [name.split(".")[-2:] for name in names(told)][1:3] == [["refusal", "delta"], ["refusal", "done"]]
    assert "".join(event.get("delta", "") for event in told) == "Not this."


def test_input_json_goes_out_as_it_stands_and_text_unescaped() -> None:
    scenario = STEP + 'block=[{text="a\\u2028b\\u00e4"},{tool="read_file", input_json=\'{"a": 1,\'}]'
    reply = Talk(scenario).reply(request(stream=True))
    assert isinstance(reply, Streamed)
    data = b"".join(frame.data for frame in reply.frames if isinstance(frame, Send))
    assert "a\u2028bä".encode() in data
    assert Talk(scenario).good(request())["output"][-1]["arguments"] == '{"a": 1,'


def test_pacing_stands_between_the_events_and_hidden_reasoning_takes_its_time() -> None:
    scenario = (
        STEP + "pacing={delay_ms=7, chunk_chars=4, interval_ms=10, ping_every_ms=5}\n"
        'block=[{thinking="0123456789"},{text="abcdefgh", delay_ms=50}]'
    )
    reply = Talk(scenario).reply(request(stream=True, reasoning={"effort": "low"}))
    assert isinstance(reply, Streamed)
    assert [frame.ms for frame in reply.frames if isinstance(frame, Wait)] == [30, 50, 10, 10]
    assert (reply.delay_ms, reply.ping_every_ms) == (7, 5)
    assert reply.ping.startswith(b":")
    assert reply.ping.endswith(b"\n\n")


@pytest.mark.parametrize(
    ("given", "status", "kind", "code", "message"),
    [
        ("status=429", 429, "tokens", "rate_limit_exceeded", "Rate limit reached"),
        ("status=500", 500, "server_error", "server_error", "The server had an error"),
        ("status=503", 503, "server_error", "server_error", "The engine is currently overloaded"),
        ("status=529", 503, "server_error", "server_error", "The engine is currently overloaded"),
        ("status=502", 502, "server_error", "server_error", "The server had an error"),
        ("status=401", 401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided"),
        ("status=418", 418, "invalid_request_error", None, "We could not parse"),
        ('status=503, type="overloaded_error", message="Busy"', 503, "server_error", "server_error", "Busy"),
        ('status=429, type="rate_limit_error"', 429, "tokens", "rate_limit_exceeded", "Rate limit reached"),
        ('status=429, type="insufficient_quota"', 429, "insufficient_quota", "insufficient_quota", ""),
        ('status=400, type="invalid_request_error", message="No."', 400, "invalid_request_error", None, "No."),
    ],
)
def test_http_errors(given: str, status: int, kind: str, code: str | None, message: str) -> None:
    talk = Talk(f'{STEP}fault={{times=1, http_error={{{given}, headers={{Retry-After="2"}}}}}}\nblock=[{{text="Hi."}}]')
    reply = talk.reply(request(stream=True))
    assert isinstance(reply, Whole)
    assert reply.headers["retry-after"] == "2"
    talk.dialect._script.reset()
    answered, error = talk.ask(request())
    assert answered == reply.status == status
    assert (error["error"]["type"], error["error"]["code"], error["error"]["param"]) == (kind, code, None)
    assert error["error"]["message"].startswith(message)
    assert talk.good(request())["status"] == "completed"


def test_an_error_event_ends_the_stream_in_the_flat_form() -> None:
    fault = 'fault={error_event={type="rate_limit_error", message="Slow down", after_events=3}}'
    talk = Talk(f'{STEP}{fault}\nblock=[{{text="Hi."}}]')
    events = talk.events(request())
    assert names(events) == ["created", "in_progress", "output_item.added", "error"]
    assert events[-1] == {
        "type": "error",
        "sequence_number": 3,
        "code": "rate_limit_exceeded",
        "message": "Slow down",
        "param": None,
    }
    assert talk.ask(request())[0] == 429


def test_cuts_and_silence() -> None:
    cut = Talk(f'{STEP}fault={{cut_after_events=4, cut_cleanly=false}}\nblock=[{{text="Hi."}}]')
    reply = cut.reply(request(stream=True))
    assert isinstance(reply, Streamed)
    assert reply.frames[4:] == (Cut(cleanly=False),)
    whole = cut.reply(request())
    assert isinstance(whole, Whole)
    assert whole.cut
    silent = Talk(f'{STEP}fault={{silence_ms=900, silence_after_events=2}}\nblock=[{{text="Hi."}}]')
    reply = silent.reply(request(stream=True))
    assert isinstance(reply, Streamed)
    assert reply.frames[2] == Wait(900)
    assert silent.reply(request()).delay_ms == 900
