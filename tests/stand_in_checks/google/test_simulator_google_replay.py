"""The Gemini dialect: what it answers, and signatures that come back on the parts that they were issued for."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.stand_in_checks import google_talk as google
from tests.stand_in_checks.google_talk import (
    DUMMY,
    NEW,
    OLD,
    Talk,
    continued,
    model,
    parts_of,
    request,
    results,
    texts,
    user,
)
from tests.stand_in_checks.talk import change_letter

OTHER_MODEL = "gemini-4-argon"
CORRUPTED = "Corrupted thought signature."
MISPLACED = "Invalid thought signature."
Parts = list[dict[str, Any]]
Change = Callable[[Parts], object]


def missing(position: int) -> str:
    return (
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
        "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function "
        f"call `default_api:read_file` , position {position}. Please refer to "
        "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
    )


def in_loop(*, streams: bool = True, **options: str) -> tuple[Talk, dict[str, Any]]:
    """The third request of a tool loop: two answers with calls stand before it."""
    talk = Talk()
    ask = talk.streamed if streams else talk.good
    body = request(**google.THOUGHTS)
    body = continued(body, ask(body, **options))
    return talk, continued(body, ask(body, **options))


def calls(parts: Parts) -> Parts:
    return [part for part in parts if "functionCall" in part]


def sign_call(change: Callable[[str], str]) -> Change:
    """Change the signature of the first call, which alone has one."""
    return lambda parts: calls(parts)[0].update(thoughtSignature=change(calls(parts)[0]["thoughtSignature"]))


def put(signature: str) -> Change:
    return lambda parts: calls(parts)[0].update(thoughtSignature=signature)


def copy_signature(target: Callable[[Parts], dict[str, Any]]) -> Change:
    return lambda parts: target(parts).update(thoughtSignature=calls(parts)[0]["thoughtSignature"])


def drop(parts: Parts) -> None:
    del calls(parts)[0]["thoughtSignature"]


def rename(parts: Parts) -> None:
    """Both spellings are one field."""
    call = calls(parts)[0]
    call["thought_signature"] = call.pop("thoughtSignature")
    call["function_call"] = call.pop("functionCall")


def move(parts: Parts) -> None:
    calls(parts)[1]["thoughtSignature"] = calls(parts)[0].pop("thoughtSignature")


def exchange(one: int, other: int) -> Change:
    def apply(parts: Parts) -> None:
        parts[one], parts[other] = parts[other], parts[one]

    return apply


def encode_urlsafe(signature: str) -> str:
    return base64.urlsafe_b64encode(base64.b64decode(signature)).decode().rstrip("=")


def change_path(call: int, path: str) -> Change:
    return lambda parts: calls(parts)[call]["functionCall"]["args"].update(path=path)


OTHER = "context_engineering_is_the_way_to_go"
swap, swap_later = exchange(-3, -2), exchange(-2, -1)  # The second call has no signature.
foreign = put(base64.b64encode(b"made by somebody else").decode())
MISSING = missing(2)
REPLAYS: dict[str, tuple[Change, str | None]] = {
    "rename": (rename, None),
    "urlsafe": (sign_call(encode_urlsafe), None),
    "merge_texts": (lambda parts: parts.__setitem__(slice(-3), [{"text": "Looking at it now, right away."}]), None),
    "drop_thoughts": (lambda p: p.__setitem__(slice(None), [part for part in p if not part.get("thought")]), None),
    "dummy": (put(DUMMY), None),
    "dummy in words": (put("skip_thought_signature_validator"), None),
    "other dummy": (put(base64.b64encode(OTHER.encode()).decode()), None),
    "other dummy in words": (put(OTHER), None),
    "drop": (drop, MISSING),
    "move": (move, MISSING),
    "swap": (swap, MISSING),
    "change_byte": (sign_call(lambda text: change_letter(text, 60)), CORRUPTED),
    "cut": (sign_call(lambda text: text[:-4]), CORRUPTED),
    "foreign": (foreign, CORRUPTED),
    "copy": (copy_signature(lambda parts: calls(parts)[1]), MISPLACED),
    "swap_later": (swap_later, MISPLACED),
    "change_arguments": (change_path(0, "b"), MISPLACED),
    "change_later_arguments": (change_path(1, "c"), MISPLACED),
    "change_text": (lambda parts: parts[-4].update(text=parts[-4]["text"] + " "), MISPLACED),
    "drop_text": (lambda parts: parts.__delitem__(slice(0, -3)), MISPLACED),
    "text_between": (lambda parts: parts.insert(-2, {"text": "Hm."}), MISPLACED),
    "text_behind": (lambda parts: parts.append({"text": "That is all."}), MISPLACED),
    "on_text": (copy_signature(lambda parts: parts[-4]), MISPLACED),
    "on_thought": (copy_signature(lambda parts: parts[0]), MISPLACED),
    "repair_others": (lambda parts: calls(parts)[1].update(thoughtSignature=DUMMY), MISPLACED),
}


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", REPLAYS)
def test_what_comes_back_in_a_loop(name: str, streams: bool) -> None:
    change, message = REPLAYS[name]
    talk, body = in_loop(streams=streams)
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


def test_every_step_of_a_turn_needs_its_own_signature() -> None:
    talk, body = in_loop()
    drop(body["contents"][3]["parts"])
    assert talk.refused(body) == missing(4)
    streamed = talk.reply(body, method="streamGenerateContent")
    assert getattr(streamed, "body", b"").startswith(b"["), "an array that is an error has it as its element"


def test_broken_base64_is_told_with_its_place() -> None:
    talk, body = in_loop()
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
    talk, body = in_loop()
    assert talk.refused(body, **options) == CORRUPTED
    for number in (1, 3):
        calls(body["contents"][number]["parts"])[0]["thoughtSignature"] = DUMMY
    talk.good(body, **options)


def test_another_process_did_not_issue_it() -> None:
    assert Talk().refused(in_loop()[1]) == CORRUPTED


def test_earlier_turns_need_none_but_what_they_have_is_checked() -> None:
    talk, body = in_loop()
    body = continued(body, talk.streamed(body), "plain")
    for content in body["contents"]:
        for part in content["parts"]:
            part.pop("thoughtSignature", None)
    body["contents"] = [c for c in body["contents"] if c["parts"] != [{"text": ""}]]
    body["contents"][5]["parts"] = [part for part in body["contents"][5]["parts"] if part.get("text")]
    talk.good(body)
    foreign(body["contents"][1]["parts"])
    assert talk.refused(body) == CORRUPTED


def test_generation_2_checks_signatures_without_demanding_them() -> None:
    talk, body = in_loop(model=OLD)
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
    assert talk.refused(body) == missing(2)
    body["contents"][1] = model("As I said: ", {**call, "thoughtSignature": DUMMY})
    assert parts_of(talk.good(body))[-1]["functionCall"]["args"] == {"path": "ok"}


@pytest.mark.parametrize("name", [NEW, OLD, OTHER_MODEL])
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_a_paused_answer_goes_on_with_its_token(name: str, streams: bool) -> None:
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
    unknown = base64.b64encode(b"somebody else's").decode()
    signature = parts_of(talk.good(body))[-1]["thoughtSignature"]
    for wrong, options in ((unknown, {}), (token, {"key": "other"}), (token, {"model": OTHER_MODEL}), (signature, {})):
        assert talk.refused({**body, "continuationToken": wrong}, **options) == "Invalid continuation token."
    assert "another request" in talk.refused({**request("pause."), "continuationToken": token})
    assert "(TYPE_BYTES), Base64 decoding failed" in talk.refused({**body, "continuationToken": "?"})


ENDINGS = [
    ('stop_reason="max_tokens"\nblock=[{text="a"}]', "MAX_TOKENS", None, "a"),
    ('stop_reason="context_window"\nblock=[{text="a"}]', "MAX_TOKENS", None, "a"),
    ('stop_reason="stop_sequence"\nstop_sequence="x"\nblock=[{text="a"}]', "STOP", None, "a"),
    ('stop_reason="refusal"\nrefusal={explanation="Stopped."}\nblock=[{text="a"}]', "SAFETY", "Stopped.", "a"),
    ('stop_reason="pause_turn"\nblock=[{text="a"}]', "CONTINUATION", None, "a"),
    (
        'block=[{text="a"},{tool="t",input_json="[1]"}]',
        "MALFORMED_FUNCTION_CALL",
        "Malformed function call: t([1])",
        "a",
    ),
    ('block=[{tool="t",input_json="{"},{text="b"}]', "MALFORMED_FUNCTION_CALL", "Malformed function call: t({)", ""),
    ('stop_reason="max_tokens"\nblock=[{text="a"},{tool="t",input_json="{"}]', "MAX_TOKENS", None, "a"),
    ('block=[{thinking="only"}]', "STOP", None, ""),
    ("block=[]", "STOP", None, ""),
]


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("step", "reason", "message", "text"), ENDINGS)
def test_endings(step: str, reason: str, message: str | None, text: str, streams: bool) -> None:
    talk = Talk(f"[[turn]]\n[[turn.step]]\n{step}")
    answer = talk.streamed(request()) if streams else talk.good(request())
    candidate = answer["candidates"][0]
    assert (candidate["finishReason"], candidate.get("finishMessage"), texts(answer)) == (reason, message, text)
    assert ("continuationToken" in candidate) is (reason == "CONTINUATION")
    if parts_of(answer):
        talk.good(continued(request(), answer, "next"))


def test_raw_parts_come_as_they_stand_and_may_come_back() -> None:
    talk = Talk(
        '[[turn]]\n[[turn.step]]\nblock=[{raw={type="server"}},{dialect="google",raw={newThing={a=1}}},'
        '{dialect="google",raw={executableCode={language="PYTHON",code="1"}}},{text="Ran."},{tool="t"}]\n'
        '[[turn.step]]\nblock=[{text="End."}]'
    )
    body = request()
    answer = talk.streamed(body)
    parts = parts_of(answer)
    assert parts[:2] == [{"newThing": {"a": 1}}, {"executableCode": {"language": "PYTHON", "code": "1"}}]
    body = continued(body, answer)
    assert texts(talk.good(body)) == "End."
    body["contents"][1]["parts"][0]["newThing"]["a"] = 2
    assert talk.refused(body) == "Invalid thought signature."
    assert "Unknown name" in Talk().refused(body), "another scenario does not know the part"


COURSE = """
[[turn]]
when = { user = "tools", system = "strict", model = "gemini-3", tools = ["read_file"] }
[[turn.step]]
block = [{ text = "All hold." }]
[[turn]]
[[turn.step]]
block = [{ tool = "read_file" }, { tool = "list_files" }]
[[turn.step]]
block = [{ text = "{{result:1}}/{{result:2}}" }]
[[turn]]
[[turn.step]]
block = [{ text = "second: {{user}}" }]
"""


def test_which_step_plays() -> None:
    talk = Talk(COURSE)
    body = request("one")
    first = talk.good(body)
    loop = continued(body, first)
    answers = loop["contents"][-1]["parts"]
    answers[0]["functionResponse"]["response"] = {"error": "failed"}
    answers[1]["functionResponse"]["response"] = {"rows": [1]}
    assert texts(talk.good(loop)) == 'failed/{"rows": [1]}'
    loop["contents"].append(user("<note>Hurry.</note>"))
    assert texts(talk.good(loop)) == 'failed/{"rows": [1]}', "a remark in tags is no prompt"
    loop["contents"][-1] = user("Now this.")
    assert texts(talk.good(loop)) == "second: Now this."
    strict = request("tools", systemInstruction={"parts": [{"text": "be "}, {"text": "strict"}]})
    assert texts(talk.good(strict)) == "All hold."
    assert parts_of(talk.good(request("tools")))[0]["functionCall"]["name"] == "read_file"
    both = request(contents=[user("one"), user("and"), *loop["contents"][1:2], results(parts_of(first))])
    assert texts(talk.good(both)) == "result 1/result 2", "neighbouring contents of the user are one prompt"
