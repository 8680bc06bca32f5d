"""The vendor's own client as an independent judge: same stream, same items; our requests fit its types."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCallParam, ResponseReasoningItemParam
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.responses.response_input_item_param import FunctionCallOutput, Message
from openai.types.responses.response_input_text_param import ResponseInputTextParam
from openai.types.responses.response_output_message_param import ResponseOutputMessageParam
from openai.types.responses.response_output_text_param import ResponseOutputTextParam
from pydantic import TypeAdapter

from tests.support.openai_cases import ENDPOINT, cases, expected, raw, run, stream
from tests.support.openai_requests import REQUESTS
from tests.support.sse_server import SseServer, head
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter


@pytest.mark.parametrize("case", [case for case in cases(failing=False) if expected(case)["sdk_agrees"]])
async def test_the_vendor_reads_the_same_answer(case: str) -> None:
    async with SseServer([[head(), stream(case)]]) as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0)
        async with client.responses.stream(model="gpt-6-sol", input="x") as theirs:
            ends = [event async for event in theirs if event.type in ("response.completed", "response.incomplete")]
        await client.close()
    (end,) = ends
    response = end.response
    ours = run(stream(case))
    assert [without_nulls(raw(block)) for block in ours.message.blocks] == [
        without_nulls(item.model_dump(mode="json", by_alias=True, warnings=False)) for item in response.output
    ]
    assert ours.message.text.replace("\n\n", "") == response.output_text
    counted = response.usage
    assert counted is not None
    usage = ours.usage
    assert (usage.input_tokens, usage.output_tokens) == (counted.input_tokens, counted.output_tokens)
    assert usage.cache_read_tokens == counted.input_tokens_details.cached_tokens
    assert usage.cache_write_tokens == counted.input_tokens_details.cache_write_tokens
    assert usage.thinking_tokens == counted.output_tokens_details.reasoning_tokens


@pytest.mark.parametrize("case", ["truncated", "truncated_after_the_last_item"])
async def test_the_vendor_too_demands_an_end(case: str) -> None:
    async with SseServer([[head(), stream(case)]]) as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0)
        async with client.responses.stream(model="gpt-6-sol", input="x") as theirs:
            with pytest.raises(RuntimeError, match=r"response\.completed"):
                await theirs.get_final_response()
        await client.close()


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_fit_the_types_of_the_vendor(name: str) -> None:
    body = json.loads(bytes(OpenAiResponsesAdapter().encode(REQUESTS[name], ENDPOINT).body))
    body["input"] = [named(item) for item in body["input"]]
    check(body, ResponseCreateParamsStreaming)
    for tool in body.get("tools", ()):
        check(tool, FunctionToolParam)
    for item in body["input"]:
        check_item(item)


def named(item: dict[str, Any]) -> dict[str, Any]:
    """The vendor's types know only answers that have a name; the service takes those that were rebuilt without one."""
    if item.get("role") != "assistant" or "id" in item:
        return item
    content = [{**part, "annotations": []} for part in item["content"]]
    return {**item, "id": "", "status": "completed", "content": content}


def check_item(item: dict[str, Any]) -> None:
    match item["type"], item.get("role"):
        case "message", "assistant":
            check(item, ResponseOutputMessageParam)
            for part in item["content"]:
                check(part, ResponseOutputTextParam)
        case "message", _:
            check(item, Message)
            for part in item["content"]:
                check(part, ResponseInputTextParam)
        case "reasoning", _:
            check(item, ResponseReasoningItemParam)
        case "function_call", _:
            check(item, ResponseFunctionToolCallParam)
        case "function_call_output", _:
            check(item, FunctionCallOutput)
        case kind, _:
            assert kind == "web_search_call"


def check(value: dict[str, Any], kind: Any) -> None:
    """Validation drops unknown keys, so nothing may be missing afterwards. Lists are checked by their members."""
    validated = TypeAdapter(kind).validate_python(value)
    for key, item in value.items():
        assert key in validated, key
        if not isinstance(item, list):
            assert validated[key] == item


# What the vendor's client adds to the items that it parses.
ADDED = ("parsed", "parsed_arguments")


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None and key not in ADDED}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
