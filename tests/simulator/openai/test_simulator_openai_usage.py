"""The usage of a response, and what of a prompt the service has cached by itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.support.simulator_openai_talk import MODEL, Talk, continued, request, user

STEP = "[[turn]]\n[[turn.step]]\n"
STEPS = (
    "[[turn]]\n" + 25 * '[[turn.step]]\nblock=[{thinking="Hm, the next one."},{tool="read_file",input={path="a"}}]\n'
)
LONG = "You help with a long text. " * 400


@pytest.mark.parametrize("model", [MODEL, "gpt-5.2", "gpt-6.2-sol"])
def test_a_loop_reads_from_the_cache_what_the_step_before_sent(model: str) -> None:
    talk = Talk(STEPS)
    body = request("go " + LONG, model)
    before: list[int] = []
    for _ in range(8):
        answer = talk.good(body)
        usage = answer["usage"]
        cached, written = usage["input_tokens_details"].values()
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"]
        assert cached % 128 == 0
        assert (written > 0) is (model != "gpt-5.2")
        if before:
            # The instructions of the newest models stand behind the input and are not cached.
            assert before[-1] - 128 - 10 < cached <= before[-1]
        before.append(usage["input_tokens"])
        body = continued(body, answer)
    assert all(earlier < later for earlier, later in pairwise(before))


@pytest.mark.parametrize(
    ("changes", "hits"),
    [
        ({}, True),
        ({"max_output_tokens": 50}, True),
        ({"instructions": "You help. Today is Friday."}, False),
        ({"tools": []}, False),
        ({"reasoning": {"effort": "low"}}, False),
        ({"model": "gpt-6-luna"}, False),
        ({"prompt_cache_options": {"mode": "explicit"}}, False),
        ({"input": [user("plain"), user(LONG)]}, False),
    ],
)
def test_what_keeps_a_cached_prompt(changes: dict[str, Any], hits: bool) -> None:
    talk = Talk()
    body = request("plain " + LONG)
    assert talk.good(body)["usage"]["input_tokens_details"]["cached_tokens"] == 0
    cached = talk.good({**body, **changes})["usage"]["input_tokens_details"]["cached_tokens"]
    assert (cached > 1024) is hits


def test_short_prompts_are_not_cached_and_long_ones_not_for_ever() -> None:
    talk = Talk(now=[0.0])
    for _ in range(2):
        assert talk.good(request("plain"))["usage"]["input_tokens_details"] == {
            "cached_tokens": 0,
            "cache_write_tokens": 0,
        }
    body = request("plain " + LONG)
    for seconds, hit in ((0, False), (1700, True), (1700, True), (9000, False)):
        talk.now[0] += seconds
        assert (talk.good(body)["usage"]["input_tokens_details"]["cached_tokens"] > 0) is hit


def test_scripted_figures_win() -> None:
    given = "usage={input_tokens=100,cache_read_tokens=60,cache_write_tokens=30,output_tokens=9,thinking_tokens=4}"
    assert Talk(f'{STEP}{given}\nblock=[{{text="Hi."}}]').good(request())["usage"] == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 109,
    }
