"""Sends requests to the offline model without a socket."""

from __future__ import annotations

import json
from typing import Any

from thinklsp.offline.scenario import parse_scenario
from thinklsp.offline.service import OfflineResponse, OfflineService


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
