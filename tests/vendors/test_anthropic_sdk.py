"""Our requests fit the types of the vendor's client."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from anthropic.types import MessageParam, TextBlockParam, ToolUnionParam
from anthropic.types.message_content_param import MessageContentParam
from anthropic.types.message_create_params import MessageCreateParamsStreaming

from tests.support.anthropic_samples import ENDPOINT, REQUESTS
from tests.vendors.clients import check_type
from thinklsp.providers.anthropic import AnthropicAdapter


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_fit_the_types_of_the_vendor(name: str) -> None:
    body = json.loads(AnthropicAdapter().encode(REQUESTS[name], ENDPOINT).body)
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
