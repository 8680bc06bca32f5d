"""Signatures come back on the parts that they were issued for, and none is missing in the current turn."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.simulator_google_talk import (
    DUMMY,
    NEW,
    OLD,
    THOUGHTS,
    Talk,
    continued,
    model,
    parts_of,
    request,
    texts,
    user,
)

CORRUPTED = "Corrupted thought signature."
MISPLACED = "Invalid thought signature."
Parts = list[dict[str, Any]]


def missing(name: str, position: int) -> str:
    return (
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
        "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function "
        f"call `default_api:{name}` , position {position}. Please refer to "
        "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
    )


def in_loop(talk: Talk, *, streams: bool = True, **options: str) -> dict[str, Any]:
    """The third request of a tool loop: two answers with calls stand before it."""
    ask = talk.streamed if streams else talk.good
    body = request(**THOUGHTS)
    body = continued(body, ask(body, **options))
    return continued(body, ask(body, **options))


def calls(parts: Parts) -> Parts:
    return [part for part in parts if "functionCall" in part]


def drop(parts: Parts) -> None:
    del calls(parts)[0]["thoughtSignature"]


def rename(parts: Parts) -> None:
    """Both spellings are one field."""
    call = calls(parts)[0]
    call["thought_signature"] = call.pop("thoughtSignature")
    call["function_call"] = call.pop("functionCall")


def urlsafe(parts: Parts) -> None:
    call = calls(parts)[0]
    raw = base64.b64decode(call["thoughtSignature"])
    call["thoughtSignature"] = base64.urlsafe_b64encode(raw).decode().rstrip("=")


def merge_texts(parts: Parts) -> None:
    parts[:] = [{"text": "Looking at it now, right away."}, *calls(parts)]


def drop_thoughts(parts: Parts) -> None:
    parts[:] = [part for part in parts if not part.get("thought")]


def change_byte(parts: Parts) -> None:
    call = calls(parts)[0]
    text = call["thoughtSignature"]
    call["thoughtSignature"] = text[:60] + ("A" if text[60] != "A" else "B") + text[61:]


def cut(parts: Parts) -> None:
    calls(parts)[0]["thoughtSignature"] = calls(parts)[0]["thoughtSignature"][:-4]


def foreign(parts: Parts) -> None:
    calls(parts)[0]["thoughtSignature"] = base64.b64encode(b"made by somebody else").decode()


def move(parts: Parts) -> None:
    first, second, _ = calls(parts)
    second["thoughtSignature"] = first.pop("thoughtSignature")


def copy(parts: Parts) -> None:
    calls(parts)[1]["thoughtSignature"] = calls(parts)[0]["thoughtSignature"]


def swap(parts: Parts) -> None:
    """The second call first: it has no signature."""
    parts[-3], parts[-2] = parts[-2], parts[-3]


def swap_later(parts: Parts) -> None:
    parts[-2], parts[-1] = parts[-1], parts[-2]


def change_arguments(parts: Parts) -> None:
    calls(parts)[0]["functionCall"]["args"]["path"] = "b"


def change_later_arguments(parts: Parts) -> None:
    calls(parts)[1]["functionCall"]["args"]["path"] = "c"


def change_text(parts: Parts) -> None:
    parts[-4]["text"] += " "


def text_between(parts: Parts) -> None:
    parts.insert(-2, {"text": "Hm."})


def text_behind(parts: Parts) -> None:
    parts.append({"text": "That is all."})


def on_text(parts: Parts) -> None:
    parts[-4]["thoughtSignature"] = calls(parts)[0]["thoughtSignature"]


def on_thought(parts: Parts) -> None:
    parts[0]["thoughtSignature"] = calls(parts)[0]["thoughtSignature"]


def repair_others(parts: Parts) -> None:
    calls(parts)[1]["thoughtSignature"] = DUMMY


def dummy(form: str) -> Callable[[Parts], None]:
    def put(parts: Parts) -> None:
        calls(parts)[0]["thoughtSignature"] = form

    return put


OTHER = "context_engineering_is_the_way_to_go"
REPLAYS: list[tuple[Callable[[Parts], None], str | None]] = [
    (rename, None),
    (urlsafe, None),
    (merge_texts, None),
    (drop_thoughts, None),
    (dummy(DUMMY), None),
    (dummy("skip_thought_signature_validator"), None),
    (dummy(base64.b64encode(OTHER.encode()).decode()), None),
    (dummy(OTHER), None),
    (drop, missing("read_file", 2)),
    (move, missing("read_file", 2)),
    (swap, missing("read_file", 2)),
    (change_byte, CORRUPTED),
    (cut, CORRUPTED),
    (foreign, CORRUPTED),
    (copy, MISPLACED),
    (swap_later, MISPLACED),
    (change_arguments, MISPLACED),
    (change_later_arguments, MISPLACED),
    (change_text, MISPLACED),
    (lambda parts: parts.__delitem__(slice(0, -3)), MISPLACED),
    (text_between, MISPLACED),
    (text_behind, MISPLACED),
    (on_text, MISPLACED),
    (on_thought, MISPLACED),
    (repair_others, MISPLACED),
]


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("change", "message"), REPLAYS)
def test_what_comes_back_in_a_loop(change: Callable[[Parts], None], message: str | None, streams: bool) -> None:
    talk = Talk()
    body = in_loop(talk, streams=streams)
    change(body["contents"][1]["parts"])
    if change in (swap, swap_later):
        answers = body["contents"][2]["parts"]
        answers[:] = [
            next(a for a in answers if a["functionResponse"]["id"] == call["functionCall"]["id"])
            for call in calls(body["contents"][1]["parts"])
        ]
    if message is None:
        assert texts(talk.good(body)) == "Done with result 1."
    else:
        assert talk.refused(body) == message


def test_every_step_of_the_turn_needs_its_own_and_the_position_is_the_contents() -> None:
    talk = Talk()
    body = in_loop(talk)
    drop(body["contents"][3]["parts"])
    assert talk.refused(body) == missing("read_file", 4)
    streamed = talk.reply(body, method="streamGenerateContent")
    assert getattr(streamed, "body", b"").startswith(b"["), "an array that is an error has it as its element"


def test_broken_base64_is_told_with_its_place() -> None:
    talk = Talk()
    body = in_loop(talk)
    body["contents"][1]["parts"][-3]["thoughtSignature"] = "no base64!"
    place = f"contents[1].parts[{len(body['contents'][1]['parts']) - 3}].thought_signature"
    text = f"Invalid value at '{place}' (TYPE_BYTES), Base64 decoding failed for \"no base64!\""
    status, answer = talk.ask(body)
    assert (status, answer["error"]["message"]) == (400, text)
    violation = {"field": place, "description": text}
    kind = "type.googleapis.com/google.rpc.BadRequest"
    assert answer["error"]["details"] == [{"@type": kind, "fieldViolations": [violation]}]


@pytest.mark.parametrize("options", [{"model": "gemini-3.6-flash"}, {"model": OLD}, {"key": "another"}])
def test_a_signature_holds_for_one_model_and_one_key(options: dict[str, str]) -> None:
    talk = Talk()
    body = in_loop(talk)
    assert talk.refused(body, **options) == CORRUPTED
    for number in (1, 3):
        calls(body["contents"][number]["parts"])[0]["thoughtSignature"] = DUMMY
    talk.good(body, **options)


def test_another_process_did_not_issue_it() -> None:
    assert Talk().refused(in_loop(Talk())) == CORRUPTED


def test_earlier_turns_need_none_but_what_they_have_is_checked() -> None:
    talk = Talk()
    body = in_loop(talk)
    body = continued(body, talk.streamed(body), "plain")
    for content in body["contents"]:
        for part in content["parts"]:
            part.pop("thoughtSignature", None)
    body["contents"] = [c for c in body["contents"] if c["parts"] != [{"text": ""}]]
    body["contents"][5]["parts"] = [part for part in body["contents"][5]["parts"] if part.get("text")]
    talk.good(body)
    foreign(body["contents"][1]["parts"])
    assert talk.refused(body) == CORRUPTED


def test_the_turn_begins_anew_behind_a_remark_beside_results_though_the_prompt_does_not() -> None:
    """The service knows no remarks: any user content without results begins a turn."""
    talk = Talk()
    body = in_loop(talk)
    body["contents"].append(user("<note>Be quick.</note>"))
    drop(body["contents"][1]["parts"])
    assert texts(talk.good(body)) == "Done with result 1."


@pytest.mark.parametrize("streams", [True, False])
def test_the_signature_of_a_plain_answer_stays_on_its_part(streams: bool) -> None:
    talk = Talk()
    body = request("plain")
    answer = talk.streamed(body) if streams else talk.good(body)
    body = continued(body, answer, "plain")
    talk.good(body)
    parts = body["contents"][1]["parts"]
    signature = parts[-1].pop("thoughtSignature")
    assert parts[-1] == {"text": "" if streams else "Plain answer of more than one chunk."}
    body["contents"][1]["parts"] = [{"text": texts(answer)}, {"thoughtSignature": signature}]
    if streams:
        talk.good(body)
        body["contents"][1]["parts"] = [{"text": texts(answer), "thoughtSignature": signature}]
    assert talk.refused(body) == MISPLACED
    body["contents"][1]["parts"] = [{"text": texts(answer)}]
    talk.good(body)


def test_what_a_broken_stream_cut_off_may_be_missing() -> None:
    talk = Talk()
    first = request()
    parts = parts_of(talk.streamed(first))
    for kept in (2, 1):
        cut_off = parts[: kept - 3]
        body = continued(first, {"candidates": [{"content": {"parts": cut_off}}]})
        talk.good(body)


def test_models_of_generation_2_take_none_but_check_those_they_get() -> None:
    talk = Talk()
    body = in_loop(talk, model=OLD)
    assert "id" not in calls(body["contents"][1]["parts"])[0]["functionCall"]
    assert "thoughtSignature" in calls(body["contents"][1]["parts"])[0]
    talk.good(body, model=OLD)
    foreign(body["contents"][3]["parts"])
    assert talk.refused(body, model=OLD) == CORRUPTED
    for number in (1, 3):
        drop(body["contents"][number]["parts"])
    assert texts(talk.good(body, model=OLD)) == "Done with result 1."


def test_a_call_that_no_model_made_needs_the_dummy() -> None:
    talk = Talk()
    call: dict[str, Any] = {"functionCall": {"name": "read_file", "args": {"path": "x"}}}
    answer = user({"functionResponse": {"name": "read_file", "response": {"output": "ok"}}})
    body = request(contents=[user("loop"), model("As I said: ", call), answer])
    assert talk.refused(body) == missing("read_file", 2)
    body["contents"][1] = model("As I said: ", {**call, "thoughtSignature": DUMMY})
    assert parts_of(talk.good(body))[-1]["functionCall"]["args"] == {"path": "ok"}


@pytest.mark.parametrize("name", [NEW, OLD, "gemini-4-argon"])
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_an_answer_in_pieces_goes_on_with_its_token_and_counts_as_one_content(name: str, streams: bool) -> None:
    talk = Talk()
    ask = talk.streamed if streams else talk.good
    body = request("pause")
    pieces: Parts = []
    token = None
    for text in ("One, ", "two, ", "three"):
        answer = ask({**body, **({"continuationToken": token} if token else {})}, model=name)
        assert texts(answer) == text
        token = answer["candidates"][0].get("continuationToken")
        assert (answer["candidates"][0]["finishReason"] == "CONTINUATION") is (token is not None) is (text != "three")
        pieces += parts_of(answer)
    one = {"candidates": [{"content": {"parts": pieces}}]}
    assert texts(talk.good(continued(body, one), model=name)) == "Counted result 1."


def test_a_continuation_token_is_for_one_request() -> None:
    talk = Talk()
    body = request("pause")
    token = talk.good(body)["candidates"][0]["continuationToken"]
    safe = base64.urlsafe_b64encode(base64.b64decode(token)).decode()
    assert texts(talk.good({**body, "continuation_token": safe})) == "two, "
    foreign = base64.b64encode(b"somebody else's").decode()
    assert talk.refused({**body, "continuationToken": foreign}) == "Invalid continuation token."
    assert talk.refused({**body, "continuationToken": token}, key="other") == "Invalid continuation token."
    assert talk.refused({**body, "continuationToken": token}, model="gemini-4-argon") == "Invalid continuation token."
    assert "another request" in talk.refused({**request("pause."), "continuationToken": token})
    assert "(TYPE_BYTES), Base64 decoding failed" in talk.refused({**body, "continuationToken": "?"})
    signature = parts_of(talk.good(body))[-1]["thoughtSignature"]
    assert talk.refused({**body, "continuationToken": signature}) == "Invalid continuation token."


def test_a_streamed_answer_may_come_back_in_as_many_contents_as_it_had_chunks() -> None:
    talk = Talk()
    body = request("plain", **THOUGHTS)
    chunks = [chunk["candidates"][0]["content"] for chunk in talk.chunks(body)]
    body["contents"] += [*chunks, user("plain")]
    talk.good(body)
    body["contents"].insert(-1, model("By the way."))
    talk.good(body)
    body["contents"][-3]["parts"].append({"text": "Hm."})
    assert talk.refused(body) == MISPLACED


def test_text_that_another_service_left_may_stand_before_an_answer() -> None:
    """An answer that began elsewhere goes on here: both halves are one content, for a call may not follow a model."""
    talk = Talk()
    body = request()
    parts = parts_of(talk.streamed(body))
    halves = {"candidates": [{"content": {"parts": [{"text": "Before: "}, *parts]}}]}
    talk.good(continued(body, halves))
    halves["candidates"][0]["content"]["parts"][0] = {"text": "Before: " + parts[0]["text"]}
    halves["candidates"][0]["content"]["parts"].pop(1)
    talk.good(continued(body, halves))
