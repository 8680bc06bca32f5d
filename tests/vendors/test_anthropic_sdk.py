"""The vendor's own client as an independent judge: same stream, same message; our requests fit its types."""

from __future__ import annotations

import json
from typing import Any, get_args

import anthropic
import pytest
from anthropic.types import MessageParam, TextBlockParam, ToolUnionParam
from anthropic.types.message_content_param import MessageContentParam
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

from tests.support.anthropic_cases import ENDPOINT, cases, expected, raw, run, stream
from tests.support.anthropic_requests import REQUESTS
from tests.support.sse_server import SseServer, head
from thinklsp.providers.anthropic.adapter import AnthropicAdapter


@pytest.mark.parametrize("case", [case for case in cases(failing=False) if expected(case)["sdk_agrees"]])
async def test_the_vendor_reads_the_same_message(case: str) -> None:
    async with SseServer([[head(), stream(case)]]) as server:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)
        async with client.messages.stream(
            model="claude-opus-5-5", max_tokens=100, messages=[{"role": "user", "content": "x"}]
        ) as theirs:
            message = await theirs.get_final_message()
        await client.close()
    ours, usage, _ = run(stream(case))
    # The vendor's objects add fields of their own with the value None.
    assert [without_nulls(raw(block)) for block in ours.blocks] == [
        without_nulls(block.model_dump(mode="json", by_alias=True, warnings=False)) for block in message.content
    ]
    counted = message.usage
    cached = (counted.cache_read_input_tokens or 0) + (counted.cache_creation_input_tokens or 0)
    assert (usage.input_tokens, usage.output_tokens) == (counted.input_tokens + cached, counted.output_tokens)
    assert usage.cache_read_tokens == counted.cache_read_input_tokens
    details = counted.output_tokens_details
    assert usage.thinking_tokens == (details.thinking_tokens if details else None)


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_fit_the_types_of_the_vendor(name: str) -> None:
    body = json.loads(bytes(AnthropicAdapter().encode(REQUESTS[name], ENDPOINT).body))
    check(body, MessageCreateParamsStreaming)
    for message in body["messages"]:
        check(message, MessageParam)
        for block in message["content"]:
            check(block, BLOCKS)
    for tool in body.get("tools", ()):
        check(tool, ToolUnionParam)
    for block in body.get("system", ()):
        check(block, TextBlockParam)


# What stands in the list of a message's content; validated block by block, since lists are validated lazily.
BLOCKS = get_args(get_args(MessageContentParam)[1])[0]


def check(value: dict[str, Any], kind: Any) -> None:
    """Validation drops unknown keys, so nothing may be missing afterwards. Lists are checked by their members."""
    validated = TypeAdapter(kind).validate_python(value)
    for key, item in value.items():
        assert key in validated
        if not isinstance(item, list):
            assert validated[key] == item


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
