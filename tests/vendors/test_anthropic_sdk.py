"""The vendor's own client as an independent judge: same stream, same message; our requests fit its types."""

from __future__ import annotations

import json
from typing import get_args

import anthropic
import pytest
from anthropic.types import MessageParam, TextBlockParam, ToolUnionParam
from anthropic.types.message_content_param import MessageContentParam
from anthropic.types.message_create_params import MessageCreateParamsStreaming

from tests.support.anthropic_samples import ENDPOINT, REQUESTS, cases, expected, raw, run, stream
from tests.support.hosts import SseServer, head
from tests.vendors.clients import check_type, drop_nulls
from thinklsp.providers.anthropic import AnthropicAdapter


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
    assert [drop_nulls(raw(block)) for block in ours.blocks] == [
        drop_nulls(block.model_dump(mode="json", by_alias=True, warnings=False)) for block in message.content
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
    check_type(body, MessageCreateParamsStreaming)
    for message in body["messages"]:
        check_type(message, MessageParam)
        for block in message["content"]:
            check_type(block, BLOCKS)
    for tool in body.get("tools", ()):
        check_type(tool, ToolUnionParam)
    for block in body.get("system", ()):
        check_type(block, TextBlockParam)


BLOCKS = get_args(get_args(MessageContentParam)[1])[0]
