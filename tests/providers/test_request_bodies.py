"""What models and editors say can always be sent again: to the service that said it and to every other one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    ensure_unique_call_ids,
)
from thinklsp.core.stream_events import MessageAccumulator
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.base import Adapter, Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalogue import find_model
from thinklsp.providers.chat_adapter import OpenAiChatAdapter
from thinklsp.providers.chat_servers import resolve_server
from thinklsp.providers.google import GoogleAdapter
from thinklsp.providers.responses_adapter import OpenAiResponsesAdapter

CHAT = resolve_server("http://h/v1", kind=None, echo=None, think_tags=False)
ADAPTERS: Mapping[str, tuple[Adapter, str]] = {
    "anthropic": (AnthropicAdapter(), "claude-opus-5-5"),
    "openai": (OpenAiResponsesAdapter(), "gpt-6-sol"),
    "google": (GoogleAdapter(), "gemini-3.8-flash"),
    "openai-compatible": (OpenAiChatAdapter(CHAT), "some-model"),
}


def call_tools(provider: str, ids: Sequence[str], arguments: str = "{}", name: str = "list_files") -> list[str]:
    """Write the stream of an answer that calls a tool once for each id, byte for byte with these arguments."""
    function = f'"name":"{name}","arguments":{json.dumps(arguments)}'
    quoted = [*enumerate(map(json.dumps, ids))]
    match provider:
        case "anthropic":
            events = ['{"type":"message_start","message":{"model":"m"}}']
            delta = f'{{"type":"input_json_delta","partial_json":{json.dumps(arguments)}}}'
            for index, call_id in quoted:
                block = f'{{"type":"tool_use","id":{call_id},"name":"{name}","input":{{}}}}'
                events += [
                    f'{{"type":"content_block_start","index":{index},"content_block":{block}}}',
                    f'{{"type":"content_block_delta","index":{index},"delta":{delta}}}',
                    f'{{"type":"content_block_stop","index":{index}}}',
                ]
            return [*events, '{"type":"message_delta","delta":{"stop_reason":"tool_use"}}', '{"type":"message_stop"}']
        case "openai":
            items = (f'{{"type":"function_call","id":"fc_{n}","call_id":{one},{function}}}' for n, one in quoted)
            done = '{{"type":"response.output_item.done","output_index":{},"item":{}}}'
            return [
                '{"type":"response.created","response":{"id":"r"}}',
                *(done.format(index, item) for index, item in enumerate(items)),
                '{"type":"response.completed","response":{"id":"r"}}',
            ]
        case "google":
            calls = [f'{{"functionCall":{{"id":{one},"name":"{name}","args":{arguments}}}' for _, one in quoted]
            parts = ",".join([f'{calls[0]},"thoughtSignature":"c2ln"}}', *(f"{call}}}" for call in calls[1:])])
            return [f'{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"STOP"}}]}}']
        case _:
            chunks = ",".join(f'{{"index":{index},"id":{one},"function":{{{function}}}}}' for index, one in quoted)
            return [f'{{"choices":[{{"delta":{{"tool_calls":[{chunks}]}},"finish_reason":"tool_calls"}}]}}', "[DONE]"]


def called(provider: str, arguments: str) -> list[str]:
    return call_tools(provider, ["t1"], arguments, "read_file")


def endpoint(provider: str) -> Endpoint:
    return Endpoint(provider, "http://h/v1", "key-0123456789")


def read_answer(provider: str, events: Sequence[str]) -> AssistantMessage:
    adapter, model = ADAPTERS[provider]
    decoder, accumulator = adapter.create_decoder(), MessageAccumulator(endpoint(provider).build_origin(model))
    for data in events:
        for event in decoder.feed("", data):
            accumulator.apply(event)
    for event in decoder.finish():
        accumulator.apply(event)
    return accumulator.build_message()


def make_unique(provider: str, events: Sequence[str]) -> AssistantMessage:
    return ensure_unique_call_ids(read_answer(provider, events), ())


def with_result(message: AssistantMessage, text: str = "done") -> Conversation:
    [call] = message.tool_uses
    return UserMessage.from_text("Go on."), message, UserMessage((ToolResultBlock(call.id, text),))


def sent(provider: str, conversation: Conversation, system: str = "Be good.") -> Any:
    """The body as a strict service reads it."""
    adapter, model = ADAPTERS[provider]
    request = ModelRequest(find_model(provider, model), system, (), conversation, Thinking(), 1000)
    text = adapter.encode(request, endpoint(provider)).body.decode()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    body = json.loads(text, parse_constant=refuse)
    json.dumps(body, ensure_ascii=False).encode("utf-8")
    return body


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("provider", ADAPTERS)
def test_numbers_that_json_does_not_have_are_never_sent(provider: str, number: str) -> None:
    try:
        message = make_unique(provider, called(provider, f'{{"start_line": {number}}}'))
    except StreamProtocolError:
        assert provider == "google", "elsewhere only the arguments are wrong, not the stream"
        return
    [call] = message.tool_uses
    assert call.input is None, "it is for nobody to run"
    for other in ADAPTERS:
        sent(other, with_result(message))


@pytest.mark.parametrize("provider", ADAPTERS)
def test_half_a_character_pair_never_leaves(provider: str) -> None:
    message = make_unique(provider, called(provider, '{"path": "a\\ud83d.py", "text": "\\ud83d\\ude00 \\\\ud83d"}'))
    for other in ADAPTERS:
        text = json.dumps(sent(other, with_result(message, "x\udc00"), system="s\ud800"), ensure_ascii=False)
        # Arguments that are a string of their own go back escaped as they came.
        assert "\U0001f600" in text or (other == provider and "\\\\ud83d\\\\ude00" in text), "whole ones stay"


@pytest.mark.parametrize("name", ["default_api:read_file", "a.b", "ünï", "x" * 200])
@pytest.mark.parametrize("provider", ADAPTERS)
def test_tools_are_called_by_names_that_every_service_takes(provider: str, name: str) -> None:
    """Models invent names; in an answer of another service they would be refused for ever."""
    conversation = with_result(AssistantMessage((ToolUseBlock("t1", name, {}),), "tool_use"))
    text = json.dumps(sent(provider, conversation))
    assert name not in text
    assert "x" * 65 not in text


# What is replaced in the stream of an ordinary call.
ODD_ANSWERS: Mapping[str, tuple[str, dict[str, str]]] = {
    "a call without an id": ("anthropic", {'"id":"t1",': ""}),
    "a call with an empty id": ("anthropic", {'"id":"t1"': '"id":""'}),
    "a call without a name": ("anthropic", {'"read_file"': "null"}),
    "a call with a number for a name": ("openai", {'"read_file"': "7"}),
    "a signature that is none": ("google", {'"c2ln"': "7"}),
    "a call that is none": (
        "google",
        {
            ',"thoughtSignature":"c2ln"}]': "}]",
            '"parts":[': '"parts":[{"functionCall":null,"text":"","thoughtSignature":"c2ln"},',
        },
    ),
}


@pytest.mark.parametrize("name", ODD_ANSWERS)
def test_an_odd_answer_is_a_broken_one_or_can_go_back(name: str) -> None:
    """Stored and sent back as it came it would be refused in every later request of the session."""
    provider, changes = ODD_ANSWERS[name]
    events = called(provider, "{}")
    for old, new in changes.items():
        assert old in "".join(events)
        events = [event.replace(old, new) for event in events]
    try:
        message = make_unique(provider, events)
    except StreamProtocolError:
        return
    body = sent(provider, with_result(message))
    match provider:
        case "anthropic":
            [call], [result] = body["messages"][1]["content"], body["messages"][2]["content"]
            assert call["id"] == result["tool_use_id"] != ""
        case "openai":
            [call] = [item for item in body["input"] if item["type"] == "function_call"]
            assert isinstance(call["name"], str)
        case "google":
            [call] = [part for part in body["contents"][1]["parts"] if part.get("functionCall")]
            assert call["thoughtSignature"], "the first call of the step has one"
