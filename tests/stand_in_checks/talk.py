"""Speaks to a dialect without a socket: a request in, status and JSON (or events) out. Here that of Anthropic; others
are in `simulator_openai_talk`, `simulator_chat_talk` and `simulator_google_talk`."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, ClassVar

from tests.stand_ins.anthropic.service import AnthropicDialect
from tests.stand_ins.dialect import Dialect, ReceivedRequest, SendBytes, StreamedReply, WholeReply
from tests.stand_ins.http_server import Simulator
from thinklsp.offline.scenario import Scenario, parse_scenario
from thinklsp.offline.script import Script

HEADERS = {"x-api-key": "sk-test", "anthropic-version": "2023-06-01", "content-type": "application/json"}
TOOLS = [
    {"name": name, "description": "A tool", "input_schema": {"type": "object", "properties": {}}}
    for name in ("read_file", "list_files", "search_text")
]
REST_OF_LOOP = """
[[turn.step]]
block = [{ thinking = "In between." }, { tool = "read_file", input = { path = "{{result:1}}" } }]
[[turn.step]]
block = [{ thinking = "At last." }, { text = "Done with {{result:1}}." }]

[[turn]]
when = "plain"
[[turn.step]]
block = [{ thinking = "Plain thinking." }, { text = "Plain answer." }]
"""
LOOP = f"""
[[turn]]
when = "loop"
[[turn.step]]
block = [
  {{ thinking = "First I think." }}, {{ redacted_thinking = "hidden" }}, {{ thinking = "And think again." }},
  {{ text = "Looking." }}, {{ tool = "read_file", input = {{ path = "a" }} }}, {{ tool = "list_files" }},
]
{REST_OF_LOOP}
[[turn]]
when = "pause"
[[turn.step]]
stop_reason = "pause_turn"
block = [{{ thinking = "Wait." }}, {{ text = "Searching." }}]
[[turn.step]]
block = [{{ thinking = "Go on." }}, {{ text = "Found." }}]
"""


class DialectTalk:
    """What the talks with all dialects have in common."""

    speaks: ClassVar[type[Any]]
    path: ClassVar[str]
    headers: ClassVar[dict[str, str]]
    scenario: ClassVar[str] = LOOP

    def __init__(self, scenario: str = "", *, now: list[float] | None = None) -> None:
        self.now = now or [1000.0]
        script = Script(parse_scenario(scenario or self.scenario, "test"))
        self.dialect: Dialect = self.speaks(script, clock=lambda: self.now[0])

    def reply(self, body: Any, *, path: str = "", method: str = "POST", **headers: str) -> WholeReply | StreamedReply:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        path, _, query = (path or self.path).partition("?")
        return self.dialect.build_reply(ReceivedRequest(method, path, query, sent, raw))

    def ask(self, body: Any, **options: str) -> tuple[int, Any]:
        reply = self.reply(body, **options)
        assert isinstance(reply, WholeReply)
        return reply.status, json.loads(reply.body)

    def good(self, body: Any, **options: str) -> Any:
        status, answer = self.ask(body, **options)
        assert status == 200, answer
        return answer

    def sent(self, body: Any, **options: str) -> list[bytes]:
        """The pieces of a stream."""
        reply = self.reply(body, **options)
        assert isinstance(reply, StreamedReply), reply
        return [frame.data for frame in reply.frames if isinstance(frame, SendBytes)]

    def events(self, body: Any, **options: str) -> list[Any]:
        return [parsed(data) for data in self.sent({**body, "stream": True}, **options)]


class Talk(DialectTalk):
    speaks = AnthropicDialect
    path = "/v1/messages"
    headers = HEADERS

    def refused(self, body: Any, **options: str) -> str:
        status, answer = self.ask(body, **options)
        assert status == 400, answer
        assert answer["type"] == "error"
        assert answer["error"]["type"] == "invalid_request_error"
        assert answer["request_id"].startswith("req_")
        return str(answer["error"]["message"])


def parsed(data: bytes) -> Any:
    """One event of the wire; the name and the type inside must agree."""
    name, value, *rest = data.decode().split("\n")
    assert rest == ["", ""]
    event = json.loads(value.removeprefix("data: "))
    assert name == f"event: {event['type']}"
    return event


class OneDialect(Simulator):
    """A server that plays only this dialect."""

    speaks: ClassVar[type[Any]]

    def __init__(self, scenario: Scenario | str) -> None:
        super().__init__(parse_scenario(scenario, "test") if isinstance(scenario, str) else scenario)
        self._dialects = (self.speaks(self._script),)


def change_letter(text: str, position: int) -> str:
    position %= len(text)
    return text[:position] + ("A" if text[position] != "A" else "B") + text[position + 1 :]


def request(prompt: str = "loop", model: str = "claude-opus-5-5", **changes: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    body = {"model": model, "max_tokens": 8000, "messages": messages, "tools": deepcopy(TOOLS), "system": "You help."}
    return {**body, **changes}


def without_limit(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "max_tokens"}


def continued(body: dict[str, Any], answer: dict[str, Any], prompt: str | None = None) -> dict[str, Any]:
    """The next request: the answer exactly as it came, then results for its calls, or a new prompt."""
    calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
    content: Any = [
        {"type": "tool_result", "tool_use_id": call, "content": f"result {n}"} for n, call in enumerate(calls, 1)
    ]
    if prompt is not None:
        content = [*content, {"type": "text", "text": prompt}]
    replayed = [*body["messages"], {"role": "assistant", "content": answer["content"]}]
    if content:
        replayed.append({"role": "user", "content": content})
    return deepcopy({**body, "messages": replayed})
