"""Requests to the offline model, without a socket."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from thinklsp.offline.scenario import parse_scenario
from thinklsp.offline.service import OfflineResponse, OfflineService

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


class OfflineTalk:
    def __init__(self, scenario: str) -> None:
        self.service = OfflineService(parse_scenario(scenario, "test"))

    def reply(self, body: Any, method: str = "POST", path: str = "/v1/messages", **headers: str) -> OfflineResponse:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode("ascii")
        return self.service.respond(method, path, headers, raw)

    def ask(self, body: Any, **options: str) -> tuple[int, Any]:
        reply = self.reply(body, **options)
        return reply.status, json.loads(b"".join(data for _, data in reply.pieces))

    def good(self, body: Any) -> Any:
        status, answer = self.ask(body)
        assert status == 200, answer
        return answer

    def events(self, body: Any, **headers: str) -> list[Any]:
        """Return the events of the stream, up to its break."""
        reply = self.reply({**body, "stream": True}, **headers)
        assert reply.headers["content-type"] == "text/event-stream"
        events = []
        try:
            for _, data in reply.play():
                name, value = data.decode("ascii").rstrip("\n").split("\n")
                events.append(json.loads(value.removeprefix("data: ")))
                assert name == f"event: {events[-1]['type']}"
        except ConnectionResetError:
            events.append({"type": "broken"})
        return events


def change_letter(text: str, position: int) -> str:
    position %= len(text)
    return text[:position] + ("A" if text[position] != "A" else "B") + text[position + 1 :]


def request(prompt: str = "loop", model: str = "claude-opus-5-5", **changes: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    body = {"model": model, "max_tokens": 8000, "messages": messages, "tools": deepcopy(TOOLS), "system": "You help."}
    return {**body, **changes}


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
