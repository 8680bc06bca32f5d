"""Sharp edges 62 to 73 of compatible servers, by number. What is recorded under `fixtures` is named by its case."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.support.chat_cases import ENDPOINT, as_events, chunk, expected, run, server, server_of, stream
from tests.support.chat_requests import (
    PLAIN,
    asked,
    body_of,
    details,
    foreign_call,
    loop,
    messages_of,
    result,
    said,
    text,
    thinking,
)
from tests.support.sse_server import SseServer, Step, answer, head
from thinklsp.agent.model_call import CallEvent, CallFinished, HttpModelCaller
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.events import Notice, RetryScheduled, TextStreamed, ThinkingStreamed
from thinklsp.core.messages import AssistantMessage, UserMessage
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_chat.servers import ChatServer, kinds

# Rows, or parts of them, that cannot come about with this program, and why.
CANNOT: dict[int, str] = {
    63: "which servers leave the index out is not known; every way of doing so that makes sense is met",
    68: "details of two models cannot be mixed: they go back only to the model that gave them",
    70: "tags in tool arguments cannot be taken for thinking: the splitter is given the content alone",
    71: "whether the request had tools is not known where the answer is read; every request of this program has them",
}
A = UserMessage.of("a")


async def called(*plays: list[Step], kind: ChatServer | None = None) -> list[CallEvent]:
    """The events of one model call against a server that answers so, with its tries."""
    tries: list[float] = []

    async def sleep(seconds: float) -> None:
        tries.append(seconds)

    async with SseServer(plays) as host:
        transport = Transport()
        endpoint = replace(ENDPOINT, base_url=f"{host.url}/v1")
        caller = HttpModelCaller(
            OpenAiChatAdapter(kind or server()), endpoint, transport, policy=RetryPolicy(), rng=lambda: 0.0, sleep=sleep
        )
        async with aclosing(caller.stream(PLAIN)) as events:
            seen = [event async for event in events]
        await transport.aclose()
        assert all(received.target == "/v1/chat/completions" for received in host.received)
    return seen


def finished(events: list[CallEvent]) -> CallFinished:
    last = events[-1]
    assert isinstance(last, CallFinished)
    return last


def test_row_62_ids_and_names_that_are_repeated_are_set_once() -> None:
    (call,) = run(stream("id_and_name_repeated")).message.tool_uses
    assert (call.id, call.name, call.input) == ("a", "f", {"x": 1})


@pytest.mark.parametrize("case", ["gateway_chunks_without_index", "index_always_zero", "calls_without_ids"])
def test_row_63_calls_are_told_apart_without_their_index(case: str) -> None:
    message = with_unique_calls(run(stream(case)).message, ())
    assert [call.input for call in message.tool_uses] == expected(case)["inputs"]
    assert len({call.id for call in message.tool_uses}) == len(message.tool_uses) >= 2
    results = [result(call.id, f"of {call.id}") for call in message.tool_uses]
    sent = messages_of((A, message, asked(*reversed(results))))
    assert [one["content"] for one in sent[2:]] == [one.text for one in results]
    assert [one["tool_call_id"] for one in sent[2:]] == [one["id"] for one in sent[1]["tool_calls"]]


@pytest.mark.parametrize("reason", ["stop", "", None, "tool_calls", "eos"])
def test_row_64_calls_count_whatever_the_reason_says(reason: str | None) -> None:
    piece = {"index": 0, "id": "t", "function": {"name": "f", "arguments": "{}"}}
    message = run(as_events(chunk({"tool_calls": [piece]}, reason))).message
    assert (message.stop_reason, len(message.tool_uses)) == ("tool_use", 1)


async def test_row_65_chunks_without_choices_are_read_for_their_usage_alone() -> None:
    seen = finished(await called([head(), stream("null_and_empty_choices")]))
    assert (seen.message.text, seen.usage.input_tokens, seen.usage.output_tokens) == ("a", 20, 9)


async def test_row_66_thinking_that_comes_twice_is_read_once() -> None:
    seen = await called([head(), stream("both_reasoning_fields")])
    assert "".join(event.delta for event in seen if isinstance(event, ThinkingStreamed)) == "same text"
    # Another port is another server, so that it is decoded anew for the replay.
    sent = messages_of((A, run(stream("both_reasoning_fields")).message, A))[1]
    assert sent == {"role": "assistant", "content": "x", "reasoning": "same text"}


def test_row_67_deepseek_gets_its_field_back_and_an_empty_one_for_foreign_calls() -> None:
    own = loop("reasoning_content")
    foreign = (A, said(foreign_call("toolu_1")), asked(result("toolu_1")))
    sent = [message for message in messages_of((*foreign, *own), server("deepseek")) if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in sent] == ["", "Hm", "So"]
    # Nobody else is sent a field that it has not given itself.
    for kind in set(kinds()) - {"deepseek"}:
        assert not any("reasoning_content" in message for message in messages_of(foreign, server(kind)))


def test_row_68_details_of_one_index_stay_apart_and_go_back_unmodified() -> None:
    case = "openrouter_text_and_encrypted_share_an_index"
    message = run(stream(case), server("openrouter")).message
    assert message.thinking == "Let me"
    entries = expected(case)["blocks"][0]["reasoning_details"]
    assert [entry["type"] for entry in entries] == ["reasoning.text", "reasoning.encrypted"]
    sent = messages_of((A, message, asked(result("tool_1"))), server("openrouter"))[1]
    assert sent["reasoning_details"] == entries
    assert "reasoning" not in sent
    assert "reasoning_details" not in messages_of((A, said(details(model_id="other"), text("x")), A))[1]


async def test_row_69_an_end_without_a_reason_is_a_break_that_is_tried_again() -> None:
    seen = await called([head(), stream("ollama_fails_in_silence")], [head(), stream("ollama_short")])
    retries = [event for event in seen if isinstance(event, RetryScheduled)]
    assert [(retry.restart, "before the answer was complete" in retry.reason) for retry in retries] == [(True, True)]
    assert finished(seen).message.text == "ja"


async def test_row_70_tags_in_the_text_are_thinking_only_where_the_user_says_so() -> None:
    data = stream("think_tags_split")
    apart = await called([head(), data], kind=server(think_tags=True))
    assert "".join(event.delta for event in apart if isinstance(event, ThinkingStreamed)) == "hm"
    assert "".join(event.delta for event in apart if isinstance(event, TextStreamed)) == "The tag is <think>. "
    (call,) = finished(apart).message.tool_uses
    assert call.input == {"a": "<think>b</think>"}
    together = finished(await called([head(), data])).message
    assert (together.thinking, together.text.count("<think>")) == ("", 2)


@pytest.mark.parametrize("kind", kinds())
async def test_row_71_an_answer_of_nothing_but_thinking_names_the_parsers_of_the_server(kind: str) -> None:
    seen = await called([head(), stream("vllm_everything_in_reasoning")], kind=server(kind))
    notices = [event.text for event in seen if isinstance(event, Notice)]
    flags = server(kind).parsers
    # Who runs the server for the user has no flags for him.
    assert bool(flags) is (kind not in ("deepseek", "openrouter", "moonshot", "openai"))
    assert len(notices) == bool(flags)
    assert all(flags in notice for notice in notices)
    if kind == "vllm":
        assert all(flag in flags for flag in ("--reasoning-parser", "--tool-call-parser", "--enable-auto-tool-choice"))


@pytest.mark.parametrize("case", ["ollama_short", "ollama_thinking_and_tool", "length_cuts_arguments", "nothing_said"])
def test_row_71_ordinary_answers_are_not_suspected(case: str) -> None:
    assert run(stream(case), server("vllm")).notices == ()
    assert run(as_events(chunk({"reasoning": "long"}), chunk(reason="length")), server("vllm")).notices == ()


def test_row_72_only_openai_is_sent_max_completion_tokens() -> None:
    request = replace(PLAIN, max_tokens=100)
    named = {kind for kind in kinds() if "max_completion_tokens" in body_of(request, server(kind))}
    assert named == {"openai"}
    assert all(body_of(request, server(kind))["max_tokens"] == 100 for kind in kinds() if kind != "openai")


@pytest.mark.parametrize("arguments", ['{"path": "a", "old', '{"path": "a"}', ""])
def test_row_73_calls_of_an_answer_that_was_cut_do_not_run(arguments: str) -> None:
    """Not even those that look whole: the agent runs no tool of an answer that ended so, and keeps no call of it."""
    piece = {"index": 0, "id": "t", "function": {"name": "edit_file", "arguments": arguments}}
    for late in ({}, {"reason": "stop"}, {"reason": "tool_calls"}):
        message = run(as_events(chunk({"tool_calls": [piece]}), chunk(reason="length"), chunk(**late))).message
        assert message.stop_reason == "max_tokens"
        assert (message.tool_uses[0].input is None) is arguments.endswith("old")


async def test_a_whole_answer_or_an_error_instead_of_a_stream() -> None:
    """Rows 6 to 9 in this dialect: JSON bodies with status 200, and errors in them."""
    whole = stream("whole_message_as_one_event").removeprefix(b"data: ").strip()
    broken = b'{"error":{"message":"Provider returned error","code":502},"choices":null}'
    seen = await called(answer(broken), answer(whole))
    assert [event.reason for event in seen if isinstance(event, RetryScheduled)] != []
    assert finished(seen).message.stop_reason == "tool_use"


async def test_what_the_service_says_that_it_cost_is_kept() -> None:
    case = "openrouter_text_and_encrypted_share_an_index"
    assert PLAIN.model.price is None
    assert finished(await called([head(), stream(case)], kind=server_of(case))).usage.cost_usd == 0.00125


def test_row_16_and_17_arguments_are_an_object_or_nothing() -> None:
    message = run(stream("arguments_in_odd_shapes")).message
    assert [call.input for call in message.tool_uses] == [{}, {"k": 1}, {}, None, None]
    unique = with_unique_calls(message, ())
    sent: list[dict[str, Any]] = messages_of((A, unique))[1]["tool_calls"]
    assert [one["function"]["arguments"] for one in sent] == ["{}", '{"k": 1}', "{}", "{}", "{}"]


def test_row_27_a_refusal_has_its_own_words() -> None:
    refused = run(stream("openai_refusal"))
    assert (refused.message.stop_reason, refused.explanation) == ("refusal", "I cannot.")
    assert refused.message.blocks == ()
    # Many servers name the field and say nothing in it.
    said_all = run(as_events(chunk({"content": "Hi.", "refusal": ""}), chunk({"refusal": ""}, "stop")))
    assert (said_all.message.stop_reason, said_all.explanation) == ("end_turn", None)


def test_row_29_an_open_call_is_answered() -> None:
    sent = messages_of((A, said(foreign_call("t")), UserMessage.of("go on")))
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]


def test_row_34_thinking_without_signature_goes_back_only_where_it_came_from() -> None:
    turn: AssistantMessage = said(thinking("Hm"), text("x"))
    assert messages_of((A, turn, A))[1]["reasoning"] == "Hm"
    elsewhere = replace(ENDPOINT, base_url="https://openrouter.ai/api/v1")
    sent = body_of(replace(PLAIN, conversation=(A, turn, A)), endpoint=elsewhere)["messages"]
    assert sent[2] == {"role": "assistant", "content": "x"}


def test_the_rows_are_all_here() -> None:
    for row in range(62, 74):
        assert any(name.startswith(f"test_row_{row}_") for name in globals()), row
    assert set(CANNOT) <= set(range(62, 74))
