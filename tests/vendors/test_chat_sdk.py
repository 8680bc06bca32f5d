"""Our requests to compatible servers fit the types of OpenAI's client."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import chat
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from tests.support.chat_samples import KINDS, REQUESTS, body_of, server
from tests.vendors.clients import check_type

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
