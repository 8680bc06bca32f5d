"""Speaks to the Anthropic dialect without a socket: a request in, status and JSON (or events) out."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from thinklsp.simulator.anthropic.service import AnthropicDialect
from thinklsp.simulator.dialect import Received, Send, Streamed, Whole
from thinklsp.simulator.scenario import parse
from thinklsp.simulator.script import Script

HEADERS = {"x-api-key": "sk-test", "anthropic-version": "2023-06-01", "content-type": "application/json"}
TOOLS = [
    {"name": name, "description": "A tool", "input_schema": {"type": "object", "properties": {}}}
    for name in ("read_file", "list_files", "search_text")
]
LOOP = """
[[turn]]
when = "loop"
[[turn.step]]
block = [
  { thinking = "First I think." }, { redacted_thinking = "hidden" }, { thinking = "And think again." },
  { text = "Looking." }, { tool = "read_file", input = { path = "a" } }, { tool = "list_files" },
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


class Talk:
    def __init__(self, scenario: str = LOOP, *, now: list[float] | None = None) -> None:
        self.now = now or [1000.0]
        self.dialect = AnthropicDialect(Script(parse(scenario, "test")), clock=lambda: self.now[0])

    def reply(self, body: Any, *, path: str = "/v1/messages", method: str = "POST", **headers: str) -> Whole | Streamed:
        sent = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        path, _, query = path.partition("?")
        return self.dialect.reply(Received(method, path, query, sent, raw))

    def ask(self, body: Any, **options: str) -> tuple[int, Any]:
        reply = self.reply(body, **options)
        assert isinstance(reply, Whole)
        return reply.status, json.loads(reply.body)

    def good(self, body: Any, **options: str) -> Any:
        status, answer = self.ask(body, **options)
        assert status == 200, answer
        return answer

    def refused(self, body: Any, **options: str) -> str:
        status, answer = self.ask(body, **options)
        assert status == 400, answer
        assert answer["type"] == "error"
        assert answer["error"]["type"] == "invalid_request_error"
        assert answer["request_id"].startswith("req_")
        return answer["error"]["message"]

    def events(self, body: Any, **options: str) -> list[Any]:
        reply = self.reply({**body, "stream": True}, **options)
        assert isinstance(reply, Streamed)
        return [parsed(frame.data) for frame in reply.frames if isinstance(frame, Send)]


def parsed(data: bytes) -> Any:
    """One event of the wire; the name and the type inside must agree."""
    name, value, *rest = data.decode().split("\n")
    assert rest == ["", ""]
    event = json.loads(value.removeprefix("data: "))
    assert name == f"event: {event['type']}"
    return event


def request(prompt: str = "loop", model: str = "claude-opus-5-5", **changes: Any) -> dict[str, Any]:
    body = {
        "model": model,
        "max_tokens": 8000,
        "messages": [{"role": "user", "content": prompt}],
        "tools": deepcopy(TOOLS),
        "system": "You help.",
    }
    return {**body, **changes}


def continued(body: dict[str, Any], answer: dict[str, Any], prompt: str | None = None) -> dict[str, Any]:
    """The next request: the answer exactly as it came, then results for its calls, or a new prompt."""
    calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
    content: Any = [
        {"type": "tool_result", "tool_use_id": call, "content": f"result {number}"}
        for number, call in enumerate(calls, 1)
    ]
    if prompt is not None:
        content = [*content, {"type": "text", "text": prompt}]
    replayed = [*body["messages"], {"role": "assistant", "content": answer["content"]}]
    if content:
        replayed.append({"role": "user", "content": content})
    return deepcopy({**body, "messages": replayed})
