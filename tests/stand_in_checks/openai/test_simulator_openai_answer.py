"""Answers of the OpenAI dialect: items, events, endings, faults, and the notes of compacted conversations."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stand_in_checks.openai_talk import MODEL, Talk, continued, request, user

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
    begun = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    for added, item in zip(begun, response["output"], strict=True):
        assert item["id"] == added["id"]
        assert item["id"].startswith(IDS[item["type"]])
        _check_pieces([event for event in events if event.get("item_id") == item["id"]], added, item)


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


def test_an_error_event_ends_the_stream_in_the_flat_form() -> None:
    fault = 'fault={error_event={type="rate_limit_error", message="Slow down", after_events=3}}'
    talk = Talk(f'{STEP}{fault}\nblock=[{{text="Hi."}}]')
    events = talk.events(request())
    assert names(events) == ["created", "in_progress", "output_item.added", "error"]
    error = {"code": "rate_limit_exceeded", "message": "Slow down", "param": None}
    assert events[-1] == {"type": "error", "sequence_number": 3, **error}
    assert talk.ask(request())[0] == 429


THRESHOLD = 1_000
LONG = "loop " + "word " * 2_000


def compacting(**changes: Any) -> dict[str, Any]:
    return request(context_management=[{"type": "compaction", "compact_threshold": THRESHOLD}], **changes)


def kinds(answer: dict[str, Any]) -> list[str]:
    return [item["type"] for item in answer["output"]]


def test_below_the_threshold_and_unasked_nothing_is_compacted() -> None:
    talk = Talk()
    assert "compaction" not in kinds(talk.good(compacting()))
    assert "compaction" not in kinds(talk.good(request(input=[user(LONG)])))


def test_above_the_threshold_only_the_note_and_later_are_read() -> None:
    talk = Talk()
    body = compacting(input=[user(LONG)])
    answer = talk.good(body)
    assert kinds(answer)[0] == "compaction"
    assert answer["output"][0].keys() == {"type", "id", "encrypted_content"}
    assert answer["usage"]["input_tokens"] > 2_000
    following = continued(body, answer)
    after = talk.good(following)
    assert "compaction" not in kinds(after)
    assert after["usage"]["input_tokens"] < THRESHOLD
    # What stands before it may go.
    following["input"] = following["input"][1:]
    assert talk.good(following)["usage"]["input_tokens"] == after["usage"]["input_tokens"]


def test_it_is_streamed_with_its_progress() -> None:
    events = Talk().events(compacting(input=[user(LONG)]))
    about = [event["type"] for event in events if event.get("output_index") == 0]
    assert about == ["response.output_item.added", "response.compaction.compacting", "response.output_item.done"]


@pytest.mark.parametrize(
    ("changes", "who", "reason"),
    [
        ({"encrypted_content": "gAAAAABmade-up"}, {}, "Encrypted content could not be decrypted or parsed."),
        ({}, {"model": "gpt-6.1-sol"}, "Encrypted content could not be decrypted or parsed."),
        ({"id": "cmp_other"}, {}, "Encrypted content item_id did not match the target item id."),
        ({}, {"authorization": "Bearer sk-another"}, "Encrypted content organization_id did not match"),
    ],
)
def test_a_note_goes_back_to_its_issuer_alone_and_unchanged(changes: Any, who: dict[str, str], reason: str) -> None:
    talk = Talk()
    body = compacting(input=[user(LONG)])
    note = {**talk.good(body)["output"][0], **changes}
    model = who.pop("model", MODEL)
    error = talk.refused({**body, "model": model, "input": [user("loop"), note, user("loop")]}, **who)
    assert error["code"] == "invalid_encrypted_content"
    assert f"{note['id']} could not be verified. Reason: {reason}" in error["message"]
