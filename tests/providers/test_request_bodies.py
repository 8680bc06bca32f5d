"""What models and editors say can always be sent again: to the service that said it and to every other one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from thinklsp.core.accumulator import MessageAccumulator
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.messages import AssistantMessage, Conversation, ToolResultBlock, ToolUseBlock, UserMessage
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import Adapter, Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalog import lookup
from thinklsp.providers.google.adapter import GoogleAdapter
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_chat.servers import server_for
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter

CHAT = server_for("http://h/v1", kind=None, echo=None, think_tags=False)
ADAPTERS: Mapping[str, tuple[Adapter, str]] = {
    "anthropic": (AnthropicAdapter(), "claude-opus-5-5"),
    "openai": (OpenAiResponsesAdapter(), "gpt-6-sol"),
    "google": (GoogleAdapter(), "gemini-3.8-flash"),
    "openai-compatible": (OpenAiChatAdapter(CHAT), "some-model"),
}


def called(provider: str, arguments: str, name: str = "read_file") -> list[str]:
    """The stream of an answer that calls one tool, byte for byte with these arguments."""
    quoted = json.dumps(arguments)
    match provider:
        case "anthropic":
            block = json.dumps({"type": "tool_use", "id": "t1", "name": name, "input": {}})
            return [
                '{"type":"message_start","message":{"model":"m"}}',
                f'{{"type":"content_block_start","index":0,"content_block":{block}}}',
                f'{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":{quoted}}}}}',
                '{"type":"content_block_stop","index":0}',
                '{"type":"message_delta","delta":{"stop_reason":"tool_use"}}',
                '{"type":"message_stop"}',
            ]
        case "openai":
            item = f'{{"type":"function_call","id":"fc_1","call_id":"c1","name":"{name}","arguments":{quoted}}}'
            return [
                '{"type":"response.created","response":{"id":"r"}}',
                f'{{"type":"response.output_item.done","output_index":0,"item":{item}}}',
                '{"type":"response.completed","response":{"id":"r"}}',
            ]
        case "google":
            part = f'{{"functionCall":{{"name":"{name}","args":{arguments}}},"thoughtSignature":"c2ln"}}'
            return [f'{{"candidates":[{{"content":{{"parts":[{part}]}},"finishReason":"STOP"}}]}}']
        case _:
            call = f'{{"index":0,"id":"c1","function":{{"name":"{name}","arguments":{quoted}}}}}'
            return [f'{{"choices":[{{"delta":{{"tool_calls":[{call}]}},"finish_reason":"tool_calls"}}]}}', "[DONE]"]


def endpoint(provider: str) -> Endpoint:
    return Endpoint(provider, "http://h/v1", "key-0123456789")


def answered(provider: str, events: Sequence[str]) -> AssistantMessage:
    adapter, model = ADAPTERS[provider]
    decoder, accumulator = adapter.decoder(), MessageAccumulator(endpoint(provider).origin(model))
    for data in events:
        for event in decoder.feed("", data):
            accumulator.apply(event)
    for event in decoder.finish():
        accumulator.apply(event)
    return with_unique_calls(accumulator.message(), ())


def with_result(message: AssistantMessage, text: str = "done") -> Conversation:
    [call] = message.tool_uses
    return UserMessage.of("Go on."), message, UserMessage((ToolResultBlock(call.id, text),))


def sent(provider: str, conversation: Conversation, system: str = "Be good.") -> Any:
    """The body as a strict service reads it."""
    adapter, model = ADAPTERS[provider]
    request = ModelRequest(lookup(provider, model), system, (), conversation, Thinking(), 1000)
    text = bytes(adapter.encode(request, endpoint(provider)).body).decode()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    body = json.loads(text, parse_constant=refuse)
    json.dumps(body, ensure_ascii=False).encode("utf-8")
    return body


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("provider", ADAPTERS)
def test_numbers_that_json_does_not_have_are_never_sent(provider: str, number: str) -> None:
    try:
        message = answered(provider, called(provider, f'{{"start_line": {number}}}'))
    except StreamProtocolError:
        assert provider == "google", "elsewhere only the arguments are wrong, not the stream"
        return
    [call] = message.tool_uses
    assert call.input is None, "it is for nobody to run"
    for other in ADAPTERS:
        sent(other, with_result(message))


@pytest.mark.parametrize("provider", ADAPTERS)
def test_half_a_character_pair_never_leaves(provider: str) -> None:
    message = answered(provider, called(provider, '{"path": "a\\ud83d.py", "text": "\\ud83d\\ude00 \\\\ud83d"}'))
    for other in ADAPTERS:
        text = json.dumps(sent(other, with_result(message, "x\udc00"), system="s\ud800"), ensure_ascii=False)
        # Arguments that are a string of their own go back escaped as they came.
        assert "\U0001f600" in text or (other == provider and "\\\\ud83d\\\\ude00" in text), "whole ones stay"


def test_halves_that_meet_are_a_whole() -> None:
    half = [ToolResultBlock("t1", "\ud83d" + "\ude00")]
    call = ToolUseBlock("t1", "read_file", {})
    for other in ADAPTERS:
        body = sent(other, (UserMessage.of("Hi"), AssistantMessage((call,)), UserMessage(tuple(half))))
        assert "\U0001f600" in json.dumps(body, ensure_ascii=False)


@pytest.mark.parametrize("name", ["default_api:read_file", "a.b", "ünï", "x" * 200])
@pytest.mark.parametrize("provider", ADAPTERS)
def test_tools_are_called_by_names_that_every_service_takes(provider: str, name: str) -> None:
    """Models invent names; in an answer of another service they would be refused for ever."""
    conversation = with_result(AssistantMessage((ToolUseBlock("t1", name, {}),), "tool_use"))
    text = json.dumps(sent(provider, conversation))
    assert name == "x" * 200 or name not in text or provider == "google"
    assert "x" * 65 not in text


def test_harmless_odd_numbers_in_the_chunks_of_compatible_servers_do_no_harm() -> None:
    chunk = '{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}],"timings":{"per_second":Infinity,"x":NaN}}'
    assert answered("openai-compatible", [chunk, "[DONE]"]).text == "Hi"


ODD_ANSWERS: Mapping[str, tuple[str, list[str]]] = {
    "a call without an id": (
        "anthropic",
        [event.replace('"id": "t1", ', "") for event in called("anthropic", "{}")],
    ),
    "a call with an empty id": (
        "anthropic",
        [event.replace('"id": "t1"', '"id": ""') for event in called("anthropic", "{}")],
    ),
    "a call without a name": (
        "anthropic",
        [event.replace('"read_file"', "null") for event in called("anthropic", "{}")],
    ),
    "a call with a number for a name": (
        "openai",
        [event.replace('"read_file"', "7") for event in called("openai", "{}")],
    ),
    "a signature that is none": ("google", [event.replace('"c2ln"', "7") for event in called("google", "{}")]),
    "a call that is none": (
        "google",
        [
            called("google", "{}")[0]
            .replace('"parts":[', '"parts":[{"functionCall":null,"text":"","thoughtSignature":"c2ln"},')
            .replace(',"thoughtSignature":"c2ln"}]', "}]")
        ],
    ),
}


@pytest.mark.parametrize("name", ODD_ANSWERS)
def test_an_odd_answer_is_a_broken_one_or_can_go_back(name: str) -> None:
    """Stored and sent back as it came it would be refused in every later request of the session."""
    provider, events = ODD_ANSWERS[name]
    try:
        message = answered(provider, events)
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
