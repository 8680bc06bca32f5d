"""Long conversations are compacted on request; the note comes back as it was issued, and ends what is read and paid."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulator_openai_talk import MODEL, Talk, continued, request, user

THRESHOLD = 1_000
LONG = "loop " + "word " * 2_000


def compacting(**changes: Any) -> dict[str, Any]:
    rules = [{"type": "compaction", "compact_threshold": THRESHOLD}]
    return request(context_management=rules, **changes)


def kinds(answer: dict[str, Any]) -> list[str]:
    return [item["type"] for item in answer["output"]]


def test_below_the_threshold_and_unasked_nothing_is_compacted() -> None:
    talk = Talk()
    assert "compaction" not in kinds(talk.good(compacting()))
    assert "compaction" not in kinds(talk.good(request(input=[user(LONG)])))


def test_above_it_the_note_comes_first_and_what_stands_before_it_is_no_longer_read() -> None:
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
def test_a_note_goes_back_to_its_issuer_alone_and_unchanged(
    changes: dict[str, Any], who: dict[str, str], reason: str
) -> None:
    talk = Talk()
    body = compacting(input=[user(LONG)])
    answer = talk.good(body)
    note = {**answer["output"][0], **changes}
    model = who.pop("model", MODEL)
    error = talk.refused({**body, "model": model, "input": [user("loop"), note, user("loop")]}, **who)
    assert error["code"] == "invalid_encrypted_content"
    assert f"{note['id']} could not be verified. Reason: {reason}" in error["message"]
