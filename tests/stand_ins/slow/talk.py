"""Conversations of thinklsp with the stand-ins, without a socket: what it sends next, for tests that change it."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from tests.offline.talk import LOOP
from tests.stand_ins.dialect import ReceivedRequest, WholeReply
from tests.support.services import PROVIDERS, Answer, join_answer, place, read, request_of
from thinklsp.core.messages import ToolResultBlock, UserMessage
from thinklsp.offline.scenario import parse_scenario
from thinklsp.offline.script import Script
from thinklsp.settings.model import Provider

Json = Any
# The key of the conversation in a request, and the model that a test asks if it does not matter which.
HELD: dict[Provider, str] = {
    "anthropic": "messages",
    "openai": "input",
    "openai-compatible": "messages",
    "google": "contents",
}
MODELS: dict[Provider, str] = {
    "anthropic": "claude-opus-5-5",
    "openai": "gpt-6-sol",
    "openai-compatible": "compatible-1",
    "google": "gemini-3.5-flash",
}


class Talk:
    def __init__(self, provider: Provider, model: str = "", *, scenario: str = LOOP) -> None:
        self.provider, self.held = provider, HELD[provider]
        self.where = place(provider, model or MODELS[provider])
        self.dialect = PROVIDERS[provider][1](Script(parse_scenario(scenario, "test")))
        request = request_of(self.where)
        budget = 2000 if request.thinking.form == "manual" else None
        self.request = replace(request, conversation=(), thinking=replace(request.thinking, budget_tokens=budget))

    def say(self, text: str) -> Json:
        """Add a prompt, and return the next request."""
        return self._add(UserMessage.from_text(text))

    def body(self) -> Json:
        return json.loads(self.where.encode(self.request).body)

    def go_on(self) -> Json:
        """Take the answer to the next request, with results for its calls, and return the request after that."""
        _, _, data = self._post(self.body())
        answer: Answer = read(self.where, data)
        results = [ToolResultBlock(call.id, f"result {n}") for n, call in enumerate(answer.message.tool_uses, 1)]
        return self._add(answer.message, *([UserMessage(tuple(results))] if results else []))

    def in_loop(self, steps: int = 2) -> Json:
        """Return a request of a tool loop, by default the third."""
        body = self.say("loop")
        for _ in range(steps):
            body = self.go_on()
        return body

    def good(self, body: Json, key: str = "", **headers: str) -> Json:
        status, answer, data = self._post(body, key, **headers)
        assert status == 200, answer
        return join_answer(self.provider, data)

    def refused(self, body: Json | bytes, key: str = "", **headers: str) -> str:
        """Return the words of a refusal, those of the server behind a router included."""
        status, answer, _ = self._post(body, key, **headers)
        assert status in (400, 401, 403, 404), answer
        error = answer["error"]
        return f"{error['message']} {error.get('metadata', {}).get('raw', '')}".strip()

    def _add(self, *messages: Any) -> Json:
        self.request = replace(self.request, conversation=(*self.request.conversation, *messages))
        return self.body()

    def _post(self, body: Json | bytes, key: str = "", **headers: str) -> tuple[int, Json, bytes]:
        """Return the status, the error, and the bytes of the stream."""
        endpoint = replace(self.where.endpoint, api_key=key) if key else self.where.endpoint
        wire = self.where.adapter.encode(self.request, endpoint)
        url = urlsplit(wire.url)
        sent = {**wire.headers, **{name.replace("_", "-"): text for name, text in headers.items()}}
        raw = body if isinstance(body, bytes) else json.dumps(deepcopy(body)).encode()
        reply = self.dialect.build_reply(ReceivedRequest("POST", url.path, url.query, sent, raw))
        if isinstance(reply, WholeReply):
            return reply.status, json.loads(reply.body), b""
        return 200, None, reply.body
