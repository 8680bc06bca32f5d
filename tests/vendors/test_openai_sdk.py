"""Our requests fit the types of the vendor's client, which demands the end of a stream as well."""

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

from tests.support.hosts import SseServer, head
from tests.support.openai_samples import ENDPOINT, REQUESTS, stream
from tests.vendors.clients import check_type
from thinklsp.providers.responses_adapter import OpenAiResponsesAdapter


@pytest.mark.parametrize("case", ["truncated", "truncated_after_the_last_item"])
async def test_the_vendor_too_demands_an_end(case: str) -> None:
    async with (
        SseServer([[head(), stream(case)]]) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
        client.responses.stream(model="gpt-6-sol", input="x") as theirs,
    ):
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            await theirs.get_final_response()


# The types of an item and of its parts, by type and role.
ITEMS: dict[tuple[str, str], tuple[Any, Any]] = {
    ("message", "assistant"): (ResponseOutputMessageParam, ResponseOutputTextParam),
    **dict.fromkeys([("message", "user"), ("message", "developer")], (Message, ResponseInputTextParam)),
    ("reasoning", ""): (ResponseReasoningItemParam, None),
    ("function_call", ""): (ResponseFunctionToolCallParam, None),
    ("function_call_output", ""): (FunctionCallOutput, None),
    ("web_search_call", ""): (None, None),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_fit_the_types_of_the_vendor(name: str) -> None:
    body = json.loads(OpenAiResponsesAdapter().encode(REQUESTS[name], ENDPOINT).body)
    body["input"] = [named(item) for item in body["input"]]
    check_type(body, ResponseCreateParamsStreaming)
    for tool in body.get("tools", ()):
        check_type(tool, FunctionToolParam)
    for item in body["input"]:
        kind, part_kind = ITEMS[item["type"], item.get("role", "") if item["type"] == "message" else ""]
        if kind is not None:
            check_type(item, kind)
        for part in item["content"] if part_kind is not None else ():
            check_type(part, part_kind)


def named(item: dict[str, Any]) -> dict[str, Any]:
    """Complete an answer without a name: the vendor's types require one, the service does not."""
    if item.get("role") != "assistant" or "id" in item:
        return item
    content = [{**part, "annotations": []} for part in item["content"]]
    return {**item, "id": "", "status": "completed", "content": content}
