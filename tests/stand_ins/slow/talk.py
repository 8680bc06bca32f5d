"""Conversations with the stand-ins, without a socket: a request in, status and JSON out.

Each `Talk` knows how a request of its service looks and how the answer goes back in the next one.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, ClassVar

from tests.stand_ins.anthropic.service import AnthropicDialect
from tests.stand_ins.chat.service import ChatDialect
from tests.stand_ins.dialect import Dialect, ReceivedRequest, WholeReply
from tests.stand_ins.google.service import GoogleDialect
from tests.stand_ins.openai.service import OpenAiDialect
from tests.support.services import join_answer
from thinklsp.offline.scenario import parse_scenario
from thinklsp.offline.script import Script
from thinklsp.settings.model import Provider

Json = Any
# A tool loop of three answers, and one answer. Gemini's calls have no thinking between them.
SCENARIO = """
[[turn]]
when = "loop"
[[turn.step]]
block = [
  { thinking = "First I think." }, { redacted_thinking = "hidden" }, { text = "Looking at it now, right away." },
  { tool = "read_file", input = { path = "a" } }, { tool = "list_files" },
]
[[turn.step]]
block = [{ thinking = "In between." }, { tool = "read_file", input = { path = "{{result:1}}" } }]
[[turn.step]]
block = [{ thinking = "At last." }, { text = "Done with {{result:1}}." }]
[[turn]]
when = "plain"
[[turn.step]]
block = [{ thinking = "Plain thinking." }, { text = "Plain answer." }]
[[turn]]
when = "pause"
[[turn.step]]
stop_reason = "pause_turn"
block = [{ thinking = "Wait." }, { text = "Searching." }]
[[turn.step]]
block = [{ thinking = "Go on." }, { text = "Found." }]
"""
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


class Talk:
    provider: ClassVar[Provider]
    speaks: ClassVar[type[Dialect]]
    model: ClassVar[str]
    held: ClassVar[str]
    """The key of the conversation in a request."""

    def __init__(self, scenario: str = SCENARIO) -> None:
        self.dialect = self.speaks(Script(parse_scenario(scenario, "test")))

    def request(self, prompt: str = "loop", **changes: Any) -> Json:
        raise NotImplementedError

    def answer_to(self, answer: Json) -> list[Json]:
        """Return the answer as it goes back, with a result for each call."""
        raise NotImplementedError

    def prompt(self, text: str) -> Json:
        return {"role": "user", "content": text}

    def path_of(self, body: Json) -> str:
        raise NotImplementedError

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    def post(self, body: Json | bytes, key: str = "sk-test", path: str = "", **headers: str) -> tuple[int, Json]:
        """Return the status, and the error or the whole answer."""
        path, _, query = (path or self.path_of(body)).partition("?")
        raw = body if isinstance(body, bytes) else json.dumps({k: v for k, v in body.items() if k != "MODEL"}).encode()
        sent = {**self.headers(key), **{name.replace("_", "-"): text for name, text in headers.items()}}
        reply = self.dialect.build_reply(ReceivedRequest("POST", path, query, sent, raw))
        if isinstance(reply, WholeReply):
            return reply.status, json.loads(reply.body)
        data = reply.body
        return 200, join_answer(self.provider, data)

    def good(self, body: Json, **how: str) -> Json:
        status, answer = self.post(body, **how)
        assert status == 200, answer
        return answer

    def refused(self, body: Json | bytes, **how: str) -> str:
        """Return the words of a refusal, those of the server behind a router included."""
        status, answer = self.post(body, **how)
        assert status in (400, 404), answer
        error = answer["error"]
        return f"{error['message']} {error.get('metadata', {}).get('raw', '')}".strip()

    def go_on(self, body: Json, answer: Json, prompt: str | None = None) -> Json:
        """Return the next request: the answer, results for its calls, and perhaps a new prompt."""
        asked = [] if prompt is None else [self.prompt(prompt)]
        return deepcopy({**body, self.held: [*body[self.held], *self.answer_to(answer), *asked]})

    def in_loop(self, **changes: Any) -> Json:
        """Return the third request of a tool loop."""
        body = self.request(**changes)
        for _ in range(2):
            body = self.go_on(body, self.good(body))
        return body


class AnthropicTalk(Talk):
    provider, speaks, model, held = "anthropic", AnthropicDialect, "claude-opus-5-5", "messages"

    def headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def path_of(self, body: Json) -> str:
        return "/v1/messages"

    def request(self, prompt: str = "loop", **changes: Any) -> Json:
        tools = [{"name": name, "input_schema": SCHEMA} for name in ("read_file", "list_files")]
        body = {"model": self.model, "max_tokens": 8000, "stream": True, "system": "You help.", "tools": tools}
        thinking = {"thinking": {"type": "adaptive", "display": "summarized"}}
        return deepcopy({**body, **thinking, "messages": [self.prompt(prompt)], **changes})

    def answer_to(self, answer: Json) -> list[Json]:
        calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call, "content": f"result {n}"} for n, call in enumerate(calls, 1)
        ]
        said = {"role": "assistant", "content": answer["content"]}
        return [said, {"role": "user", "content": results}] if results else [said]


class OpenAiTalk(Talk):
    provider, speaks, model, held = "openai", OpenAiDialect, "gpt-6-sol", "input"

    def path_of(self, body: Json) -> str:
        return "/v1/responses"

    def prompt(self, text: str) -> Json:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    def request(self, prompt: str = "loop", **changes: Any) -> Json:
        tools = [
            {"type": "function", "name": name, "parameters": SCHEMA, "strict": False}
            for name in ("read_file", "list_files")
        ]
        reasoning = {"effort": "high", "summary": "auto"}
        body = {"model": self.model, "stream": True, "store": False, "include": ["reasoning.encrypted_content"]}
        return deepcopy({**body, "reasoning": reasoning, "tools": tools, "input": [self.prompt(prompt)], **changes})

    def answer_to(self, answer: Json) -> list[Json]:
        calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": c, "output": f"result {n}"} for n, c in enumerate(calls, 1)
        ]
        return [*answer["output"], *results]


class ChatTalk(Talk):
    provider, speaks, model, held = "openai-compatible", ChatDialect, "compatible-1", "messages"

    def path_of(self, body: Json) -> str:
        return "/v1/chat/completions"

    def request(self, prompt: str = "loop", **changes: Any) -> Json:
        tools = [
            {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
            for name in ("read_file", "list_files")
        ]
        body = {"model": self.model, "stream": True, "tools": tools, "messages": [self.prompt(prompt)]}
        return deepcopy({**body, **changes})

    def answer_to(self, answer: Json) -> list[Json]:
        message = answer["choices"][0]["message"]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": f"result {n}"}
            for n, call in enumerate(message.get("tool_calls") or (), 1)
        ]
        return [message, *results]


class GoogleTalk(Talk):
    """`MODEL` in a request stands in its address."""

    provider, speaks, model, held = "google", GoogleDialect, "gemini-3.5-flash", "contents"

    def headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def path_of(self, body: Json) -> str:
        model = body.get("MODEL", self.model) if isinstance(body, dict) else self.model
        return f"/v1beta/models/{model}:streamGenerateContent?alt=sse"

    def prompt(self, text: str) -> Json:
        return {"role": "user", "parts": [{"text": text}]}

    def request(self, prompt: str = "loop", **changes: Any) -> Json:
        functions = [{"name": name, "parametersJsonSchema": SCHEMA} for name in ("read_file", "list_files")]
        thoughts = {"thinkingConfig": {"includeThoughts": True}}
        body = {"tools": [{"functionDeclarations": functions}], "generationConfig": thoughts}
        changes = {"MODEL" if key == "model" else key: value for key, value in changes.items()}
        return deepcopy({**body, "contents": [self.prompt(prompt)], **changes})

    def answer_to(self, answer: Json) -> list[Json]:
        parts = answer["candidates"][0]["content"].get("parts", [])
        names = [part["functionCall"] for part in parts if "functionCall" in part]
        results = [
            {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": f"result {n}"}}}
            for n, call in enumerate(names, 1)
        ]
        said = {"role": "model", "parts": parts}
        return [said, {"role": "user", "parts": results}] if results else [said]


TALKS: dict[str, type[Talk]] = {
    "anthropic": AnthropicTalk,
    "openai": OpenAiTalk,
    "chat": ChatTalk,
    "google": GoogleTalk,
}
