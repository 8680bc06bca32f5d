"""Speaks to the OpenAI dialect, without a socket or through one: a request in, status and JSON (or events) out."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from thinklsp.simulator.dialect import Received, Send, Streamed, Whole
from thinklsp.simulator.openai.service import OpenAiDialect
from thinklsp.simulator.scenario import parse
from thinklsp.simulator.script import Script
from thinklsp.simulator.server import Simulator

MODEL = "gpt-6-sol"
BOUND = "gpt-6.2-sol"
HEADERS = {"authorization": "Bearer sk-test", "content-type": "application/json"}
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "name": name, "description": "A tool", "strict": True, "parameters": SCHEMA}
    for name in ("read_file", "list_files", "search_text")
]
ENCRYPTED = ["reasoning.encrypted_content"]
LOOP = """
[[turn]]
when = "loop"
[[turn.step]]
block = [
  { thinking = "First I think.\\n\\nThen I plan." }, { redacted_thinking = "hidden" }, { text = "Looking." },
  { thinking = "And think again." },
  { tool = "read_file", input = { path = "a" } }, { tool = "list_files", input = { path = "." } },
]
[[turn.step]]
block = [{ thinking = "In between." }, { tool = "read_file", input = { path = "{{result:1}}" } }]
[[turn.step]]
block = [{ thinking = "At last." }, { text = "Done with {{result:1}}." }]

[[turn]]
when = "plain"
[[turn.step]]
block = [{ thinking = "Plain thinking." }, { text = "Plain answer." }]
"""


class Talk:
    def __init__(self, scenario: str = LOOP, *, now: list[float] | None = None) -> None:
        self.now = now or [1000.0]
        self.dialect = OpenAiDialect(Script(parse(scenario, "test")), clock=lambda: self.now[0])

    def reply(
        self, body: Any, *, path: str = "/v1/responses", method: str = "POST", **headers: str
    ) -> Whole | Streamed:
        sent = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.dialect.reply(Received(method, path, "", sent, raw))

    def ask(self, body: Any, **options: str) -> tuple[int, Any]:
        reply = self.reply(body, **options)
        assert isinstance(reply, Whole)
        assert reply.headers["x-request-id"].startswith("req_")
        return reply.status, json.loads(reply.body)

    def good(self, body: Any, **options: str) -> Any:
        status, answer = self.ask(body, **options)
        assert status == 200, answer
        return answer

    def refused(self, body: Any, status: int = 400, **options: str) -> Any:
        """The error of a refusal: message, type, param and code."""
        answered, answer = self.ask(body, **options)
        assert answered == status, answer
        assert answer.keys() == {"error"}
        assert answer["error"].keys() == {"message", "type", "param", "code"}
        assert answer["error"]["type"] == "invalid_request_error"
        return answer["error"]

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


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def request(prompt: str = "loop", model: str = MODEL, **changes: Any) -> dict[str, Any]:
    body = {
        "model": model,
        "store": False,
        "include": ENCRYPTED,
        "reasoning": {"effort": "high", "summary": "auto"},
        "input": [user(prompt)],
        "tools": deepcopy(TOOLS),
        "instructions": "You help.",
    }
    return {**body, **changes}


def continued(body: dict[str, Any], answer: dict[str, Any], prompt: str | None = None) -> dict[str, Any]:
    """The next request: the answer's items exactly as they came, then outputs for its calls, or a new prompt."""
    calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
    outputs = [
        {"type": "function_call_output", "call_id": call, "output": f"result {number}"}
        for number, call in enumerate(calls, 1)
    ]
    said = [user(prompt)] if prompt is not None else []
    return deepcopy({**body, "input": [*body["input"], *answer["output"], *outputs, *said]})


def in_loop(talk: Talk, **changes: Any) -> dict[str, Any]:
    """The third request of a tool loop: two answers stand before it."""
    body = request(**changes)
    body = continued(body, talk.good(body))
    return continued(body, talk.good(body))


def simulated(scenario: str = LOOP) -> Simulator:
    """A server that plays this dialect, whether or not the server already knows it."""
    simulator = Simulator(parse(scenario, "test"))
    if not any(isinstance(dialect, OpenAiDialect) for dialect in simulator._dialects):
        simulator._dialects = (OpenAiDialect(simulator._script), *simulator._dialects)
    return simulator
