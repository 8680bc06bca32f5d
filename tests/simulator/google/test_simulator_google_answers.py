"""What the Gemini dialect answers: parts and chunks, endings, usage, faults; and which step of a scenario plays."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.support.simulator_google_talk import (
    NEW,
    OLD,
    THOUGHTS,
    Talk,
    all_parts,
    continued,
    parsed,
    parts_of,
    request,
    results,
    texts,
    user,
)
from thinklsp.simulator.dialect import Cut, Send, Streamed, Wait, Whole


def kinds(parts: list[dict[str, Any]]) -> list[str]:
    """One word per part; neighbours of a kind once, calls each."""
    found: list[str] = []
    for part in parts:
        kind = "thought" if part.get("thought") else next(iter(set(part) - {"thoughtSignature"}))
        if kind == "functionCall" or found[-1:] != [kind]:
            found.append(kind)
    return found


@pytest.mark.parametrize("name", [NEW, OLD, "gemini-3-pro-preview", "gemini-4-hydrogen"])
@pytest.mark.parametrize("shown", [True, False])
def test_a_loop_streams_its_parts_and_is_accepted(name: str, shown: bool) -> None:
    talk = Talk()
    body = request(**(THOUGHTS if shown else {}))
    seen = []
    for _ in range(3):
        chunks = talk.chunks(body, model=name)
        assert len({chunk["responseId"] for chunk in chunks}) == 1
        assert {chunk["modelVersion"] for chunk in chunks} == {name}
        assert [chunk["candidates"][0].get("finishReason") for chunk in chunks] == [None] * (len(chunks) - 1) + ["STOP"]
        seen.append(kinds(all_parts(chunks)))
        body = continued(body, talk.streamed(body, model=name))
    thought = ["thought"] if shown else []
    assert seen[0] == [*thought, "text", "functionCall", "functionCall", "functionCall"]
    assert seen[1] == [*thought, "functionCall"]
    assert seen[2] == [*thought, "text"]
    first = body["contents"][1]["parts"]
    calls = [part for part in first if "functionCall" in part]
    assert ["thoughtSignature" in part for part in calls] == [True, False, False]
    assert len({call["functionCall"].get("id") for call in calls}) == (1 if name == OLD else 3)
    assert calls[0]["functionCall"]["args"] == {"path": "a", "n": 1.5}
    assert body["contents"][3]["parts"][-1]["functionCall"]["args"] == {"path": "result 1"}
    assert "".join(part["text"] for part in first if part.get("thought")) == ("Thinks." if shown else "")
    last = body["contents"][5]["parts"]
    assert texts({"candidates": [{"content": {"parts": last}}]}) == "Done with result 1."
    assert ("thoughtSignature" in last[-1]) is (name != OLD)
    assert name == OLD or last[-1]["text"] == ""


def test_parallel_calls_come_in_one_chunk_and_later_ones_in_their_own() -> None:
    scenario = '[[turn]]\n[[turn.step]]\nblock=[{tool="a"},{tool="b"},{tool="c",delay_ms=5},{redacted_thinking="x"}]'
    talk = Talk(scenario)
    chunks = talk.chunks(request())
    assert [len(all_parts([chunk])) for chunk in chunks] == [2, 1, 0]
    assert chunks[-1]["candidates"][0]["content"] == {"role": "model"}
    whole = talk.good(request())
    assert [part["functionCall"]["name"] for part in parts_of(whole)] == ["a", "b", "c"]


def test_a_stream_without_alt_sse_is_one_array_in_pieces() -> None:
    talk = Talk()
    reply = talk.reply(request("plain"), method="streamGenerateContent")
    assert isinstance(reply, Streamed)
    assert reply.headers["content-type"].startswith("application/json")
    sent = [frame.data for frame in reply.frames if isinstance(frame, Send)]
    assert len(sent) > 3
    chunks = json.loads(b"".join(sent))
    assert texts({"candidates": [{"content": {"parts": all_parts(chunks)}}]}) == "Plain answer of more than one chunk."
    refused = talk.reply({}, method="streamGenerateContent")
    assert isinstance(refused, Whole)
    assert json.loads(refused.body)[0]["error"]["code"] == 400


def test_text_is_paced_and_hidden_thinking_takes_its_time() -> None:
    scenario = (
        "pacing={interval_ms=3,chunk_chars=4,delay_ms=7,ping_every_ms=1}\n[[turn]]\n[[turn.step]]\n"
        'block=[{thinking="12345678"},{text="äö\\U0001F600x\\u2028yz",delay_ms=2}]'
    )
    reply = Talk(scenario).reply(request(), method="streamGenerateContent", query="alt=sse")
    assert isinstance(reply, Streamed)
    waits = [frame.ms for frame in reply.frames if isinstance(frame, Wait)]
    assert (waits, reply.delay_ms, reply.ping_every_ms) == ([2 * 3 + 2 + 3, 3], 7, 0)
    shown = [parsed(frame.data) for frame in reply.frames if isinstance(frame, Send)]
    assert [part["text"] for part in all_parts(shown)] == ["äö\U0001f600x", "\u2028yz", ""]


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


def test_arguments_given_as_text_are_an_object() -> None:
    talk = Talk('[[turn]]\n[[turn.step]]\nblock=[{tool="t",input_json=\'{"a": [1]}\'}]')
    assert parts_of(talk.good(request()))[0]["functionCall"]["args"] == {"a": [1]}


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_a_blocked_prompt_has_no_candidates(streams: bool) -> None:
    talk = Talk('[[turn]]\n[[turn.step]]\nstop_reason="refusal"\nrefusal={explanation="No."}')
    answer = talk.chunks(request())[0] if streams else talk.good(request())
    assert answer["promptFeedback"] == {"blockReason": "SAFETY", "blockReasonMessage": "No."}
    assert "candidates" not in answer
    assert answer["usageMetadata"]["totalTokenCount"] == answer["usageMetadata"]["promptTokenCount"] > 0


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


def test_figures_are_cumulative_and_thoughts_are_told_apart() -> None:
    talk = Talk()
    chunks = [chunk["usageMetadata"] for chunk in talk.chunks(request(**THOUGHTS))]
    assert "candidatesTokenCount" not in chunks[0]
    for before, after in pairwise(chunks):
        for name in ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount"):
            assert after.get(name, 0) >= before.get(name, 0)
    last = chunks[-1]
    assert last["totalTokenCount"] == sum(last[f"{kind}TokenCount"] for kind in ("prompt", "candidates", "thoughts"))
    whole = talk.good(request(**THOUGHTS))["usageMetadata"]
    assert whole["thoughtsTokenCount"] == last["thoughtsTokenCount"] > 5
    hidden = talk.good(request())["usageMetadata"]
    assert hidden["thoughtsTokenCount"] == whole["thoughtsTokenCount"]


def test_scripted_figures_win() -> None:
    talk = Talk(
        "[[turn]]\n[[turn.step]]\nusage={input_tokens=100,cache_read_tokens=60,output_tokens=9,thinking_tokens=4}\n"
        'block=[{thinking="' + "long " * 50 + '"},{text="' + "word " * 50 + '"}]'
    )
    chunks = [chunk["usageMetadata"] for chunk in talk.chunks(request())]
    assert {chunk["candidatesTokenCount"] for chunk in chunks} == {5}, "never more than in the end"
    details = [{"modality": "TEXT", "tokenCount": 100}]
    assert chunks[-1] == {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 4,
        "totalTokenCount": 109,
        "promptTokensDetails": details,
    }


@pytest.mark.parametrize(("name", "words", "caches"), [(OLD, 1000, True), (OLD, 100, False), (NEW, 1000, False)])
def test_the_implicit_cache_holds_long_prefixes(name: str, words: int, caches: bool) -> None:
    now = [0.0]
    talk = Talk(now=now)
    body = request(systemInstruction={"parts": [{"text": "You help. " * words}]})

    def cached(asked: dict[str, Any], **options: str) -> int:
        return int(talk.good(asked, model=name, **options)["usageMetadata"].get("cachedContentTokenCount", 0))

    first = talk.good(body, model=name)
    assert "cachedContentTokenCount" not in first["usageMetadata"]
    following = continued(body, first)
    held = cached(following)
    assert held == (first["usageMetadata"]["promptTokenCount"] if caches else 0)
    if caches:
        assert 0 < cached({**body, "contents": [user("plain")]}) < held
        assert cached({**body, "tools": []}) == 0
        assert cached(body, key="other") == 0
        now[0] += 301
        assert cached(following) == 0
        assert cached(following) > 0
        talk.dialect.reset()
        assert cached(following) == 0


def fault(text: str, **options: str) -> Any:
    talk = Talk(f'[[turn]]\n[[turn.step]]\nfault={{{text}}}\npacing={{chunk_chars=2}}\nblock=[{{text="abcdefgh"}}]')
    return talk.reply(request(), **{"method": "streamGenerateContent", "query": "alt=sse", **options})


HTTP_ERRORS = [
    ("status=429,headers={retry-after='17'}", 429, "RESOURCE_EXHAUSTED", "17s"),
    ("status=429,headers={retry-after-ms='1'}", 429, "RESOURCE_EXHAUSTED", "0.001s"),
    ("status=529", 503, "UNAVAILABLE", None),
    ("status=503,type='overloaded_error'", 503, "UNAVAILABLE", None),
    ("status=400,type='invalid_request_error'", 400, "INVALID_ARGUMENT", None),
    ("status=400,type='failed_precondition'", 400, "FAILED_PRECONDITION", None),
    ("status=500,message='Oh'", 500, "INTERNAL", None),
]


@pytest.mark.parametrize(("text", "status", "word", "delay"), HTTP_ERRORS)
def test_http_errors_have_the_service_s_words(text: str, status: int, word: str, delay: str | None) -> None:
    for query, method in (("alt=sse", "streamGenerateContent"), ("", "streamGenerateContent"), ("", "generateContent")):
        reply = fault(f"http_error={{{text}}}", query=query, method=method)
        assert isinstance(reply, Whole)
        assert (reply.status, reply.played) == (status, "turn 1, step 1")
        assert not {"retry-after", "retry-after-ms"} & set(reply.headers)
        value = json.loads(reply.body)
        if (query, method) == ("", "streamGenerateContent"):
            (value,) = value
        error = value["error"]
        assert (error["code"], error["status"]) == (status, word)
        assert error["message"] == ("Oh" if "Oh" in text else error["message"]) != ""
        details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}] if delay else None
        assert error.get("details") == details


def test_a_page_instead_of_json() -> None:
    reply = fault("http_error={status=502,body='<html>',headers={via='proxy'}}")
    assert (reply.status, reply.body, reply.headers["via"]) == (502, b"<html>", "proxy")
    assert reply.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("events", [0, 2])
def test_errors_inside_a_stream(events: int) -> None:
    text = f"error_event={{type='overloaded_error',message='Busy',after_events={events}}}"
    expected = {"error": {"code": 503, "message": "Busy", "status": "UNAVAILABLE"}}
    *before, last = [parsed(frame.data) for frame in fault(text).frames]
    assert (len(before), last) == (events, expected)
    array = b"".join(frame.data for frame in fault(text, query="").frames)
    assert json.loads(array)[-1] == expected
    whole = fault(text, method="generateContent")
    assert (whole.status, json.loads(whole.body)) == (503, expected)


def test_cuts_and_silence() -> None:
    cut = fault("cut_after_events=2,cut_cleanly=false").frames
    assert (len(cut), cut[-1]) == (3, Cut(False))
    silence = fault("silence_ms=50,silence_after_events=1").frames
    assert silence[1] == Wait(50)
    assert all_parts([parsed(frame.data) for frame in silence if isinstance(frame, Send)])[-1]["text"] == ""
    assert fault("cut_after_events=2", method="generateContent").cut
    assert fault("silence_ms=50", method="generateContent").delay_ms == 50


def test_a_fault_is_over_after_its_times_for_each_conversation() -> None:
    talk = Talk('[[turn]]\n[[turn.step]]\nfault={times=1,http_error={status=503}}\nblock=[{text="a"}]')
    assert [talk.ask(request(prompt))[0] for prompt in ("a", "a", "b", "b")] == [503, 200, 503, 200]


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
