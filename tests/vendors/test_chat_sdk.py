"""The vendor's own client as an independent judge: same stream, same content and calls; our requests fit its types."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types import chat
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from tests.support.chat_samples import KINDS, REQUESTS, body_of, cases, expected, run, server, server_of, stream
from tests.support.hosts import SseServer, head
from tests.vendors.clients import check_type


async def theirs(data: bytes) -> chat.ChatCompletion:
    async with (
        SseServer([[head(), data]]) as host,
        openai.AsyncOpenAI(base_url=f"{host.url}/v1", api_key="k", max_retries=0) as client,
        client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "x"}]) as events,
    ):
        return await events.get_final_completion()


def as_read(completion: chat.ChatCompletion) -> dict[str, Any]:
    message = completion.choices[0].message
    calls = [(one.id or "", one.function.name, one.function.arguments) for one in message.tool_calls or ()]
    return {"text": message.content or "", "calls": calls, "refusal": message.refusal or ""}


def as_wanted(case: str) -> dict[str, Any]:
    wanted = expected(case)
    calls = [
        (block["id"], block["function"]["name"], block["function"]["arguments"])
        for block in wanted["blocks"]
        if "function" in block
    ]
    refusal = wanted.get("explanation", "") if not wanted["blocks"] else ""
    return {"text": wanted.get("text", ""), "calls": calls, "refusal": refusal}


GOOD = cases(failing=False)


@pytest.mark.parametrize("case", [case for case in GOOD if expected(case)["sdk"] == "agrees"])
async def test_the_vendor_reads_the_same_content_and_calls(case: str) -> None:
    completion = await theirs(stream(case))
    ours = run(stream(case), server_of(case))
    assert as_read(completion) == as_wanted(case)
    counted = completion.usage
    if counted is not None:
        assert (ours.usage.input_tokens, ours.usage.output_tokens) == (counted.prompt_tokens, counted.completion_tokens)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("case", [case for case in GOOD if expected(case)["sdk"] != "agrees"])
async def test_where_the_vendor_reads_something_else(case: str) -> None:
    """If the client learns to read one of these, the case moves to the test above."""
    try:
        read = as_read(await theirs(stream(case)))
    except (TypeError, AttributeError, IndexError, AssertionError, RuntimeError, openai.OpenAIError):
        return
    assert read != as_wanted(case)


ROLES: dict[str, Any] = {
    "system": chat.ChatCompletionSystemMessageParam,
    "user": chat.ChatCompletionUserMessageParam,
    "assistant": chat.ChatCompletionAssistantMessageParam,
    "tool": chat.ChatCompletionToolMessageParam,
}
BEYOND = {"reasoning", "reasoning_content", "reasoning_details", "thinking", "chat_template_kwargs"}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("kind", KINDS)
def test_requests_fit_the_types_of_the_vendor(name: str, kind: str) -> None:
    body = body_of(REQUESTS[name], server(kind))
    check_type(body, CompletionCreateParamsStreaming, BEYOND)
    for message in body["messages"]:
        check_type(message, ROLES[message["role"]], BEYOND)
        for one in message.get("tool_calls", ()):
            check_type(one, chat.ChatCompletionMessageFunctionToolCallParam)
    for tool in body.get("tools", ()):
        check_type(tool, chat.ChatCompletionFunctionToolParam)
    if kind == "openai":
        assert not [message for message in (body, *body["messages"]) if BEYOND & message.keys()]
