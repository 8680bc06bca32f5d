"""Sharp edges 1 to 35, of transport and of the Messages API, by number, each with the tests that prove it.

Tests that stand elsewhere are named and looked up; what nobody else proves stands here. `test_every_row` looks over all
of them, those of the other services too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest

from tests.support.anthropic_cases import ENDPOINT, raw, run, stream
from tests.support.anthropic_requests import PLAIN, REQUESTS, loop, said, text, thinking
from tests.support.anthropic_wire import ADAPTER, body_of, unmarked
from tests.support.sse_server import SseServer, head
from thinklsp.agent.model_call import AttemptUsage, CallFinished, HttpModelCaller
from thinklsp.core.choices import PlannedThinkingMode
from thinklsp.core.events import TextStreamed, ThinkingTick
from thinklsp.core.messages import UserMessage
from thinklsp.engine.turn_config import plan_for
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.catalog import known_models, lookup
from thinklsp.settings.model import nested

MODELS = [*known_models("anthropic"), "claude-next-9"]


def every_request() -> list[ModelRequest]:
    """The samples, and the first request of every model in every mode."""
    plans = [
        (name, plan_for(nested({"thinking.mode": mode, "effort": "max"}), lookup("anthropic", name)))
        for name in MODELS
        for mode in get_args(PlannedThinkingMode)
    ]
    made = [
        replace(PLAIN, model=lookup("anthropic", name), thinking=plan.thinking, max_tokens=plan.max_tokens)
        for name, plan in plans
    ]
    return [*REQUESTS.values(), *made]


async def test_row_5_pings_for_minutes_show_nothing_and_harm_nothing() -> None:
    """Comments and pings before, between and behind everything."""
    noise = b': keep-alive\n\nevent: ping\ndata: {"type":"ping"}\n\n' * 200
    noisy = noise + stream("text").replace(b"\n\n", b"\n\n" + noise)
    shown = []
    async with SseServer([[head(), stream("text")], [head(), noisy]]) as server:
        transport = Transport()
        endpoint = replace(ENDPOINT, base_url=server.url)
        caller = HttpModelCaller(ADAPTER, endpoint, transport, policy=RetryPolicy(tries=1), rng=lambda: 0.0)
        for _ in range(2):
            async with aclosing(caller.stream(PLAIN)) as events:
                told = [event async for event in events]
            # How the text is cut, and which figures are told, depends on what came together.
            text = "".join(event.delta for event in told if isinstance(event, TextStreamed))
            shown.append([text, *(event for event in told if not isinstance(event, TextStreamed | AttemptUsage))])
        await transport.aclose()
    assert shown[0] == shown[1]
    assert shown[1][0]


def opened(block: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """A stream of one block."""
    contents: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    return "".join(f"data: {json.dumps(content)}\n\n" for content in contents).encode()


async def test_row_13_thinking_without_text_is_shown_and_goes_back() -> None:
    async with SseServer([[head(), stream("omitted_thinking")]]) as server:
        transport = Transport()
        endpoint = replace(ENDPOINT, base_url=server.url)
        caller = HttpModelCaller(ADAPTER, endpoint, transport, policy=RetryPolicy(tries=1), rng=lambda: 0.0)
        async with aclosing(caller.stream(PLAIN)) as events:
            seen = [event async for event in events]
        await transport.aclose()
    assert ThinkingTick(None) in seen
    finished = seen[-1]
    assert isinstance(finished, CallFinished)
    sent = body_of(replace(PLAIN, conversation=(*PLAIN.conversation, finished.message, UserMessage.of("y"))), endpoint)
    first = sent["messages"][1]["content"][0]
    assert (first["type"], first["thinking"]) == ("thinking", "")
    assert first["signature"]


@pytest.mark.parametrize("deltas", [(), ("",), ("", "")], ids=len)
def test_row_17_a_call_without_arguments_has_an_empty_object(deltas: tuple[str, ...]) -> None:
    pieces = ({"type": "input_json_delta", "partial_json": piece} for piece in deltas)
    message, _, _ = run(opened({"type": "tool_use", "id": "t", "name": "list_files", "input": {}}, *pieces))
    assert message.tool_uses[0].input == {}
    assert raw(message.blocks[0])["input"] == {}


def test_row_18_no_request_has_sampling_keys() -> None:
    for request in every_request():
        assert not {"temperature", "top_p", "top_k"} & body_of(request).keys()


def test_row_20_between_tools_stands_alone() -> None:
    model = lookup("anthropic", "claude-sonnet-5-5")
    plan = plan_for(nested({"thinking.mode": "off", "effort": "max", "thinking.display": "summary"}), model)
    body = body_of(replace(PLAIN, model=model, thinking=plan.thinking))
    assert body["thinking"] == {"type": "between_tools"}
    assert body["output_config"] == {"effort": "high"}
    assert any("high" in notice for notice in plan.notices)


def test_row_22_no_tool_is_ever_forced() -> None:
    for request in every_request():
        assert "tool_choice" not in body_of(request)


def test_row_26_a_paused_answer_goes_back_unchanged_at_the_end() -> None:
    """What the model adds is bound to exactly that; a placeholder behind it would have to stay there for ever."""
    paused = (said(thinking("S1")), said(text("Searching."), thinking("S2")))
    question = UserMessage.of("a")
    for count in (1, 2):
        last = unmarked(body_of(replace(PLAIN, conversation=(question, *paused[:count])))["messages"])[-1]
        assert last["role"] == "assistant"
        assert last["content"] == [raw(block) for message in paused[:count] for block in message.blocks]


def test_row_32_no_fallback_is_asked_for() -> None:
    """So the model that answers is the one that was asked, and price and abilities are its own."""
    for request in every_request():
        wire = ADAPTER.encode(request, ENDPOINT)
        assert "fallback" not in wire.headers.get("anthropic-beta", "")
        assert not [key for key in json.loads(bytes(wire.body)) if "fallback" in key]


@dataclass(frozen=True)
class Row:
    """`tests`: functions of this file, or ids of tests elsewhere; what `test_rows_of_transport` and
    `test_rows_of_answers` prove of a row for every dialect bears its number and is not named again. `fixtures`:
    recorded streams that `test_anthropic_stream` plays. `reason`: why (a part of) the row cannot come about here."""

    title: str
    tests: tuple[Callable[..., Any] | str, ...] = ()
    fixtures: tuple[str, ...] = ()
    reason: str = ""


SSE, CALL, TURN = "http/test_sse", "agent/test_model_call", "agent/test_turn"
FAILURES, REPLAY, PLAN = (
    "providers/test_anthropic_failures",
    "providers/test_anthropic_replay",
    "providers/test_thinking_plan",
)
STREAM, CATALOGUE = "providers/test_anthropic_stream", "providers/test_catalogue_requests"
EVERYWHERE, SAME = "engine/test_scenarios_everywhere", "e2e/providers/test_same_everywhere"
REMEDIES, HISTORIES = "agent/test_remedies", "agent/test_histories"

ROWS: dict[int, Row] = {
    1: Row("line separators of Unicode inside JSON", (f"{SSE}::test_framing_however_it_is_cut",), ("text",)),
    2: Row("cuts inside characters and CRLF", (f"{SSE}::test_fixtures_cut_at_every_byte",)),
    3: Row(
        "a clean end in the middle",
        (f"{CALL}::test_a_stream_cut_before_its_end_is_never_an_answer", f"{CALL}::test_tries_and_restarts"),
        ("truncated", "truncated_in_an_event", "truncated_before_stop"),
    ),
    4: Row("lines beyond 64 KB", (f"{SSE}::test_lines_far_beyond_64_kib_pass",)),
    5: Row(
        "pings for minutes",
        (test_row_5_pings_for_minutes_show_nothing_and_harm_nothing, "http/test_transport::test_a_drip_is_no_silence"),
    ),
    6: Row(
        "errors after 200, each shape of this service",
        (f"{STREAM}::test_recorded_failure", f"{CALL}::test_tries_and_restarts"),
        ("error_overloaded", "error_bare_string", "error_by_event_name", "error_unknown_type"),
    ),
    7: Row("an error body that is no JSON", (f"{FAILURES}::test_failure",)),
    8: Row(
        "JSON or a web page instead of a stream",
        (f"{CALL}::test_a_whole_message_instead_of_a_stream", f"{CALL}::test_failures_that_stay"),
    ),
    9: Row("an error as a bare string", (f"{FAILURES}::test_failure",), ("error_bare_string",)),
    10: Row("a flat error in a Responses stream"),
    11: Row("a signature is set, not appended", (f"{STREAM}::test_recorded_stream",), ("second_signature_wins",)),
    12: Row("blocks without deltas", fixtures=("redacted_thinking", "server_tools", "unknown_parts")),
    13: Row(
        "thinking without text", (test_row_13_thinking_without_text_is_shown_and_goes_back,), ("omitted_thinking",)
    ),
    14: Row("an empty thinking delta, or none", fixtures=("omitted_thinking", "thinking_without_delta")),
    15: Row("several message_delta, cumulative or without usage", fixtures=("usage_totals", "usage_missing")),
    16: Row(
        "a call cut by max_tokens",
        (f"{SAME}::test_a_cut_answer_runs_nothing_of_it", f"{TURN}::test_a_cut_answer_keeps_its_text_and_runs_no_tool"),
        ("cut_tool_arguments",),
    ),
    17: Row("a call without arguments", (test_row_17_a_call_without_arguments_has_an_empty_object,)),
    18: Row("sampling keys", (test_row_18_no_request_has_sampling_keys,)),
    19: Row(
        "a budget on new models, adaptive on old ones",
        (
            f"{CATALOGUE}::test_every_request_of_a_tool_loop_is_accepted",
            f"{PLAN}::test_rule",
            f"{REMEDIES}::test_a_form_of_thinking_that_the_model_does_not_take_is_changed_once",
        ),
    ),
    20: Row("Sonnet 5.5 is switched off by between_tools", (test_row_20_between_tools_stands_alone,)),
    21: Row("effort above high with thinking off", (f"{CATALOGUE}::test_every_request_of_a_tool_loop_is_accepted",)),
    22: Row("forced tools", (test_row_22_no_tool_is_ever_forced,)),
    23: Row(
        "prefill",
        (f"{HISTORIES}::test_every_stored_conversation_can_be_sent", f"{TURN}::test_the_checker_finds_what_is_wrong"),
    ),
    24: Row(
        "a changed prefix",
        (
            f"{REMEDIES}::test_a_system_prompt_that_changes_in_mid_session",
            f"{REMEDIES}::test_what_is_tried_is_tried_once_said_and_kept",
            "providers/test_anthropic_encode::test_same_value_same_bytes",
        ),
    ),
    25: Row(
        "an edited history",
        (f"{REMEDIES}::test_what_is_tried_is_tried_once_said_and_kept",),
        reason="nothing here edits, deletes or compacts earlier messages; a refusal is met all the same",
    ),
    26: Row(
        "pause_turn",
        (
            test_row_26_a_paused_answer_goes_back_unchanged_at_the_end,
            f"{TURN}::test_a_pause_is_sent_back_as_it_is",
            f"{TURN}::test_steps_are_limited",
        ),
        ("pause_turn",),
    ),
    27: Row(
        "a refusal with part of an answer",
        (
            f"{SAME}::test_refusal_keeps_nothing_and_applies_nothing",
            f"{TURN}::test_a_refusal_keeps_nothing_of_the_answer_and_runs_no_tool",
        ),
        ("refusal", "refusal_by_category"),
    ),
    28: Row("text before results", (f"{REPLAY}::test_messages",)),
    29: Row(
        "a stopped turn leaves no open call",
        (f"{TURN}::test_a_turn_cancelled_at_any_moment_leaves_a_conversation_that_can_be_sent",),
    ),
    30: Row("a spend limit is not tried again", (f"{FAILURES}::test_failure", f"{CALL}::test_failures_that_stay")),
    31: Row(
        "new events and blocks",
        (f"{STREAM}::test_rubbish_is_an_error_or_a_message_and_nothing_else",),
        ("unknown_parts",),
    ),
    32: Row(
        "another model answers",
        (test_row_32_no_fallback_is_asked_for,),
        ("unknown_parts",),
        "the service changes the model only where the request allows it",
    ),
    33: Row(
        "an empty end after results",
        (
            f"{EVERYWHERE}::test_row_33_an_empty_answer_after_results_is_asked_about_once",
            f"{TURN}::test_thinking_alone_is_asked_to_go_on_once",
        ),
        ("empty_end",),
    ),
    34: Row(
        "thinking without signature",
        (f"{REPLAY}::test_thinking_without_signature_goes_back_only_where_it_came_from",),
        ("local_server_without_signature",),
    ),
    35: Row(
        "an error event under status 200",
        (f"{STREAM}::test_recorded_failure", f"{CALL}::test_tries_and_restarts"),
        ("error_overloaded", "error_rate_limit", "error_invalid_request"),
    ),
}


def test_the_table_is_whole() -> None:
    assert list(ROWS) == list(range(1, 36))
    named = {test for row in ROWS.values() for test in row.tests if not isinstance(test, str)}
    here = {value for name, value in globals().items() if name.startswith("test_row_")}
    assert named == here


def test_samples_hold_a_tool_loop() -> None:
    """Otherwise the tests over all requests would say less than they seem to."""
    assert any(request.conversation == loop() for request in every_request())
    assert len(every_request()) > 80
