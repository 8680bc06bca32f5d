"""The offline model in the form of Anthropic's Messages API: signatures, faults, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.offline.talk import LOOP, OfflineTalk, change_letter, continued, request
from thinklsp.offline.scenario import ScenarioError
from thinklsp.offline.service import PAUSES_VARIABLE, SCENARIO_VARIABLE, open_service

THINKING = {"type": "adaptive", "display": "summarized"}
STEP = "[[turn]]\n[[turn.step]]\n"


def test_unmodified_thinking_is_accepted_to_the_end_of_the_loop() -> None:
    talk = OfflineTalk(LOOP)
    body = request("loop", thinking=THINKING)
    kinds = []
    while (answer := talk.good(body))["stop_reason"] == "tool_use":
        kinds.append([block["type"] for block in answer["content"]])
        body = continued(body, answer)
    assert kinds[0] == ["thinking", "redacted_thinking", "thinking", "text", "tool_use", "tool_use"]
    assert answer["content"][-1]["text"].startswith("Done with ")


UNORDERED = "must be sent back unmodified and in order"
UNSIGNED = "Invalid `signature` in `thinking` block"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda blocks: blocks.pop(0), UNORDERED),
        (lambda blocks: blocks.insert(0, blocks.pop(2)), UNORDERED),
        (lambda blocks: blocks[0].update(thinking=blocks[0]["thinking"] + "."), UNSIGNED),
        (lambda blocks: blocks[2].update(signature=change_letter(blocks[2]["signature"], -2)), UNSIGNED),
        (lambda blocks: blocks[0].update(signature=blocks[1]["data"]), UNSIGNED),
        (lambda blocks: blocks[1].update(data="no base64!"), "Invalid `signature` in `redacted_thinking` block"),
    ],
)
def test_modified_thinking_is_refused(change: Callable[[list[Any]], None], sentence: str) -> None:
    talk = OfflineTalk(LOOP)
    body = request("loop", thinking=THINKING)
    following = continued(body, deepcopy(talk.good(body)))
    change(following["messages"][1]["content"])
    status, answer = talk.ask(following)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert sentence in answer["error"]["message"]


def test_thinking_off_or_of_earlier_turns_may_be_missing() -> None:
    talk = OfflineTalk(LOOP)
    body = request("loop", thinking=THINKING)
    following = continued(body, talk.good(body))
    content = following["messages"][1]["content"]
    content[:] = [block for block in content if "thinking" not in block["type"]]
    assert talk.ask(following)[0] == 400
    talk.good({**following, "thinking": {"type": "disabled"}})
    later = [*following["messages"], {"role": "assistant", "content": "Done."}, {"role": "user", "content": "plain"}]
    talk.good({**following, "messages": later})


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        (None, None),
        ({"type": "disabled"}, None),
        ({"type": "adaptive", "display": "omitted"}, ""),
        (THINKING, "Plain thinking."),
    ],
)
def test_thinking_is_sent_as_the_request_asks(mode: Any, shown: str | None) -> None:
    body = request("plain", **({} if mode is None else {"thinking": mode}))
    talk = OfflineTalk(LOOP)
    events = talk.events(body, **{"anthropic-beta": "thinking-token-count-2026-05-13"})
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    thinking = [delta for delta in deltas if delta["type"] == "thinking_delta"]
    assert (None if not thinking else "".join(delta["thinking"] for delta in thinking)) == shown
    assert all(delta["estimated_tokens"] > 0 for delta in thinking)
    assert [block.get("thinking") for block in talk.good(body)["content"]][:-1] == ([] if shown is None else [shown])


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("cut_after_events = 2", ["message_start", "content_block_start"]),
        ("cut_after_events = 2, cut_cleanly = false", ["message_start", "content_block_start", "broken"]),
        ("error_event = { type = 'overloaded_error' }", ["message_start", "error"]),
        ("cut_after_events = 0", []),
    ],
)
def test_a_fault_with_times_ends_with_a_complete_answer(fault: str, kinds: list[str]) -> None:
    talk = OfflineTalk(f"{STEP}fault = {{ times = 1, {fault} }}\nblock = [{{ text = 'Hello' }}]")
    assert [event["type"] for event in talk.events(request("x"))] == kinds
    assert [event["type"] for event in talk.events(request("x"))][-1] == "message_stop"


def test_pauses_contain_pings_and_can_be_turned_off() -> None:
    scenario = "pacing = { delay_ms = 5, ping_every_ms = 1000 }\n" + STEP
    scenario += "block = [{ text = 'Hello', delay_ms = 2500 }, { text = '!', delay_ms = 40 }]"
    reply = OfflineTalk(scenario).reply(request("x", stream=True))
    waits = [wait for wait, _ in reply.play()]
    assert (reply.pacing.delay_ms, sum(waits)) == (5, pytest.approx(2.54))
    assert [data for _, data in reply.play()].count(b'event: ping\ndata: {"type": "ping"}\n\n') == 2


def test_the_environment_selects_the_scenario() -> None:
    body = json.dumps(request("Review this", stream=True)).encode()
    quick, slow = ({SCENARIO_VARIABLE: "demo", PAUSES_VARIABLE: pauses} for pauses in ("off", ""))
    delays = [open_service(env).respond("POST", "/v1/messages", {}, body).pacing.delay_ms for env in (quick, slow)]
    assert delays == [0, 250]
    with pytest.raises(ScenarioError, match="Cannot read the scenario 'none'"):
        open_service({SCENARIO_VARIABLE: "none"})


@pytest.mark.parametrize(
    ("fault", "status", "kind", "message"),
    [
        ("{ status = 429, headers = { Retry-After = '7' } }", 429, "rate_limit_error", "Rate limit error"),
        ("{ status = 500, message = 'Broken' }", 500, "api_error", "Broken"),
        ("{ status = 529 }", 529, "overloaded_error", "Overloaded error"),
    ],
)
def test_errors_have_the_services_form(fault: str, status: int, kind: str, message: str) -> None:
    reply = OfflineTalk(f"{STEP}fault = {{ http_error = {fault} }}").reply(request("x", stream=True))
    error = json.loads(reply.pieces[0][1])
    assert (reply.status, error) == (status, {"type": "error", "error": {"type": kind, "message": message}})
    assert reply.headers.get("retry-after") == ("7" if status == 429 else None)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/messages", b"{", 400),
        ("POST", "/v1/messages", b"[" * 100_000, 400),
        ("POST", "/v1/messages", b'{"model": "m"}', 400),
        ("POST", "/v1/messages", b'{"model": "m", "messages": [1]}', 400),
        ("POST", "/v1/chat/completions", b"{}", 404),
        ("GET", "/v1/models/any", b"", 200),
    ],
)
def test_other_requests(method: str, path: str, body: bytes, status: int) -> None:
    assert OfflineTalk(LOOP).ask(body, method=method, path=path)[0] == status


def test_a_prompt_longer_than_the_scenarios_window_is_refused() -> None:
    talk = OfflineTalk(f"context_window = 300\n{STEP}block = [{{ text = 'Hi' }}]")
    assert talk.ask(request("short"))[0] == 200
    status, answer = talk.ask(request("long " * 1000))
    assert (status, answer["error"]["message"].partition(":")[0]) == (400, "prompt is too long")


def test_the_engine_loads_the_offline_model_only_if_it_is_used() -> None:
    program = "import sys\nimport thinklsp.engine.engine\nprint('thinklsp.offline.service' in sys.modules)"
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
