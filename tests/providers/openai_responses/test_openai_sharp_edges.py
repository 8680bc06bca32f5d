"""Twelve sharp edges of the Responses API, by number: what is on the wire, and what becomes of it here."""

from __future__ import annotations

import json
import re
from contextlib import aclosing
from dataclasses import replace
from typing import Any, get_args

import pytest

from tests.support.openai_cases import ENDPOINT, as_events, expected, raw, run, stream
from tests.support.openai_requests import PLAIN, REQUESTS, asked, call, loop, result, said, text, thinking
from tests.support.openai_wire import ADAPTER, bare, body_of, broken_rules, items_of, output, user
from tests.support.sse_server import SseServer, head
from thinklsp.agent.model_call import CallEvent, CallFinished, HttpModelCaller
from thinklsp.core.choices import PlannedThinkingMode
from thinklsp.core.events import Notice, TextStreamed, ThinkingTick
from thinklsp.core.messages import AssistantMessage, ContentBlock, TextBlock, UserMessage
from thinklsp.engine.turn_config import plan_for
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.catalog import known_models, lookup
from thinklsp.settings.model import nested

# Rows, or parts of them, that cannot come about here, and why.
CANNOT: dict[int, str] = {
    38: "nobody trims or edits earlier messages here; only answers that were cut lose parts, and those go back bare",
    45: "events know no interim text: a commentary is shown as text, set apart from what follows by a blank line",
}
ROWS = range(36, 48)


def every_request() -> list[ModelRequest]:
    """The samples, and the first request of every model in every mode."""
    models = [lookup("openai", name) for name in (*known_models("openai"), "gpt-next-9")]
    plans = [
        (model, plan_for(nested({"thinking.mode": mode, "effort": "max", "thinking.display": "summary"}), model))
        for model in models
        for mode in get_args(PlannedThinkingMode)
    ]
    made = [replace(PLAIN, model=model, thinking=plan.thinking, max_tokens=plan.max_tokens) for model, plan in plans]
    return [*REQUESTS.values(), *made]


async def called(*bodies: bytes, request: ModelRequest = PLAIN) -> tuple[list[CallEvent], list[Any]]:
    """Everything that a model call says while a server plays these streams, and the requests that it was sent."""
    async with SseServer([[head(), body] for body in bodies]) as server:
        transport = Transport()
        endpoint = replace(ENDPOINT, base_url=f"{server.url}/v1")
        caller = HttpModelCaller(ADAPTER, endpoint, transport, policy=RetryPolicy(tries=1), rng=lambda: 0.0)
        async with aclosing(caller.stream(request)) as events:
            seen = [event async for event in events]
        await transport.aclose()
    return seen, server.received


def sent_again(message: AssistantMessage) -> list[dict[str, Any]]:
    return items_of((UserMessage.of("x"), message, UserMessage.of("y")))[1:-1]


@pytest.mark.parametrize("case", ["thinking_then_tool", "commentary_and_final_answer", "only_deltas"])
def test_row_36_partial_encrypted_content_is_never_kept(case: str) -> None:
    assert b"partial" in stream(case)
    message = run(stream(case)).message
    assert "partial" not in json.dumps([raw(block) for block in message.blocks])
    assert "partial" not in json.dumps(sent_again(message))


async def test_row_37_thinking_without_a_summary_is_kept_and_goes_back() -> None:
    seen, _ = await called(stream("empty_summary"))
    assert ThinkingTick(None) in seen
    finished = seen[-1]
    assert isinstance(finished, CallFinished)
    assert (finished.message.blocks[0].kind, finished.message.thinking) == ("thinking", "")
    first = sent_again(run(stream("empty_summary")).message)[0]
    assert (first["type"], first["summary"], first["encrypted_content"]) == ("reasoning", [], "gAAAAABfull")


def test_row_38_thinking_and_what_follows_it_go_back_together_or_not_at_all() -> None:
    """Whatever of an answer got lost: either all items stand there, or no thinking and no id."""
    whole: tuple[ContentBlock, ...] = (thinking("1"), text("a"), thinking("2"), call("c1"))
    for left_out in range(1, 2 ** len(whole)):
        blocks = [block for index, block in enumerate(whole) if not left_out >> index & 1]
        message = said(*blocks, stop="max_tokens")
        conversation = (UserMessage.of("x"), message, asked(result("c1"), TextBlock("y")))
        assert broken_rules(items_of(conversation), conversation) == []
        assert not [item for item in items_of(conversation) if "id" in item or item["type"] == "reasoning"]
    placeholder = said(thinking("1"), TextBlock("(thinking only)"))
    assert sent_again(placeholder) == [bare("(thinking only)")]


def test_row_39_outputs_are_keyed_by_call_id() -> None:
    answer = run(stream("thinking_then_tool")).message
    assert raw(answer.blocks[1])["id"] == "fc_1"
    assert answer.tool_uses[0].id == "call_9"
    items = items_of((UserMessage.of("x"), answer, asked(result("call_9"))))
    assert items[2:] == [raw(answer.blocks[1]), output("call_9")]
    assert items[2]["id"] == "fc_1"


@pytest.mark.parametrize("case", ["only_done_events", "only_deltas", "done_replaces_the_pieces"])
def test_row_40_arguments_come_in_pieces_or_whole(case: str) -> None:
    answer = run(stream(case)).message
    (use,) = answer.tool_uses
    assert [use.input] == expected(case)["inputs"]
    assert json.loads(raw(answer.blocks[-1])["arguments"]) == use.input


def test_row_41_items_stand_under_their_index() -> None:
    """Opened in any order, with gaps, pieces mixed, the later one finished first."""
    answer = run(stream("parallel_calls_interleaved_with_gaps")).message
    assert [use.id for use in answer.tool_uses] == ["call_1", "call_2"]
    items = [{"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in (7, 2)]
    contents = [
        {"type": "response.output_item.added", "output_index": 7, "item": items[0]},
        {"type": "response.output_item.added", "output_index": 2, "item": items[1]},
        {"type": "response.output_item.done", "output_index": 7, "item": items[0]},
        {"type": "response.output_item.done", "output_index": 2, "item": items[1]},
        {"type": "response.completed", "response": {"output": [items[1], items[0]]}},
    ]
    assert [use.id for use in run(as_events(*contents)).message.tool_uses] == ["c2", "c7"]


async def test_row_42_a_limit_that_thinking_used_up_is_said_and_half_a_call_never_runs() -> None:
    seen, _ = await called(stream("limit_used_up_by_thinking"))
    said_to_user = [event.text for event in seen if isinstance(event, Notice)]
    assert len(said_to_user) == 1
    assert said_to_user[0].startswith("The output limit was used up by thinking")
    for case in ("call_cut_by_the_limit", "whole_looking_calls_that_were_cut"):
        answer = run(stream(case))
        cut = [use for use in answer.message.tool_uses if raw(use)["status"] == "incomplete"]
        assert cut
        assert all(use.input is None for use in cut)
        assert answer.end.notices == ()


def test_row_43_obfuscation_and_unknown_keys_and_nulls_change_nothing() -> None:
    plain = run(stream("thinking_then_tool")).message
    padded = re.sub(
        rb'("sequence_number":\d+)', rb'\1,"obfuscation":"aB3","brand_new":{"a":[null]}', stream("thinking_then_tool")
    )
    assert padded.count(b"brand_new") > 8
    assert run(padded).message == plain
    assert run(stream("null_deltas")).message.text == "Hi."


async def test_row_44_thinking_that_was_removed_without_an_error_is_said() -> None:
    seen, _ = await called(stream("earlier_thinking_was_removed"))
    (notice,) = [event for event in seen if isinstance(event, Notice)]
    assert notice.text == expected("earlier_thinking_was_removed")["notices"][0]
    seen, _ = await called(stream("thinking_that_ended_with_its_turn"))
    assert not [event for event in seen if isinstance(event, Notice)]


async def test_row_45_a_commentary_is_set_apart_and_keeps_its_phase() -> None:
    seen, _ = await called(stream("commentary_and_final_answer"))
    shown = "".join(event.delta for event in seen if isinstance(event, TextStreamed))
    assert shown == "I look first.\n\nIt is fine."
    items = sent_again(run(stream("commentary_and_final_answer")).message)
    assert [item["phase"] for item in items if item["type"] == "message"] == ["commentary", "final_answer"]
    assert [item["content"][0]["text"] for item in items if item["type"] == "message"] == [
        "I look first.",
        "It is fine.",
    ]


def test_row_46_no_request_has_sampling_keys() -> None:
    sampling = {
        "temperature",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
    }
    for request in every_request():
        assert not sampling & body_of(request).keys()


def test_row_47_nothing_is_stored_or_referred_to() -> None:
    for request in every_request():
        body = body_of(request)
        assert body["store"] is False
        assert not {"previous_response_id", "conversation", "background"} & body.keys()
        assert "item_reference" not in {item["type"] for item in body["input"]}


async def test_a_tool_loop_goes_over_the_wire_and_back() -> None:
    """The second request holds the first answer as it came, behind what it was an answer to."""
    seen, received = await called(stream("thinking_then_tool"))
    assert received[0].target == "/v1/responses"
    finished = seen[-1]
    assert isinstance(finished, CallFinished)
    assert finished.usage.thinking_tokens == 96
    answer = run(stream("thinking_then_tool")).message
    items = items_of((*PLAIN.conversation, answer, asked(result("call_9"))))
    assert items == [user("Hello"), *expected("thinking_then_tool")["blocks"], output("call_9")]


def test_every_row_has_its_test() -> None:
    proven = {int(name.split("_")[2]) for name in globals() if name.startswith("test_row_")}
    assert proven == {*ROWS}
    assert CANNOT.keys() <= proven
    assert len(every_request()) > 80
    assert any(request.conversation == loop() for request in every_request())
