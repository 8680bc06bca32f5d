"""`thinklsp simulate` as Anthropic's SDK meets it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest

from tests.offline.talk import LOOP, TOOLS
from thinklsp.offline.scenario import parse_scenario
from thinklsp.offline.service import OfflineServer, OfflineService


@contextmanager
def serve(scenario: str, lines: list[str]) -> Iterator[anthropic.Anthropic]:
    with OfflineServer(OfflineService(parse_scenario(scenario, "test")), 0, lines.append) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with anthropic.Anthropic(api_key="any", base_url=server.base_url, max_retries=2) as client:
                yield client
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("streams", [True, False])
def test_a_whole_tool_loop(streams: bool) -> None:
    lines: list[str] = []
    messages: list[Any] = [{"role": "user", "content": "loop"}]
    options: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 8000, "tools": TOOLS}
    options["thinking"] = {"type": "adaptive", "display": "summarized"}
    with serve(LOOP, lines) as client:
        while True:
            if streams:
                with client.messages.stream(messages=messages, **options) as stream:
                    answer = stream.get_final_message()
            else:
                answer = client.messages.create(messages=messages, **options)
            if answer.stop_reason != "tool_use":
                break
            calls = [block.id for block in answer.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call, "content": "found"} for call in calls]
            messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    assert answer.content[-1].type == "text"
    assert answer.content[-1].text == "Done with found."
    assert answer.usage.output_tokens > 0
    assert lines == [f"POST /v1/messages: 200 (turn 1, step {step})" for step in (1, 2, 3)]


@pytest.mark.parametrize("length", ["", "many", "-1", "9" * 5000])
def test_a_request_without_a_fair_length_is_refused(length: str) -> None:
    with (
        OfflineServer(OfflineService(parse_scenario(LOOP, "test")), 0, print) as server,
        socket.create_connection(server.server_address) as client,
    ):
        threading.Thread(target=server.handle_request).start()
        client.sendall(f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
        assert client.recv(100).split()[1] == b"413"


def test_faults_are_the_vendors_own_errors() -> None:
    step = "fault = { times = 2, http_error = { status = 529 } }\nblock = [{ text = 'Hi' }]"
    lines: list[str] = []
    with serve(f"[[turn]]\n[[turn.step]]\n{step}", lines) as client:
        answer = client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}])
        assert answer.content[0].type == "text"
        with pytest.raises(anthropic.BadRequestError, match="must be an object"):
            client.messages.create(model="m", max_tokens=9, messages=[1])  # type: ignore[list-item]
    assert [line.split()[2] for line in lines] == ["529", "529", "200", "400"]
