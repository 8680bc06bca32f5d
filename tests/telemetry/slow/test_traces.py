"""The traces of a real server in an OTLP receiver: their spans, and no text of a user or a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.acting import edit_file, say
from tests.support.listening import Listening
from tests.support.outside import MODEL, Outside
from tests.support.signing_server import Failure, Thinking, answer
from tests.telemetry.monitored import METRICS, find_port, read_samples, run_first, select
from thinklsp.cli.serve_sockets import has_trace_receiver

Begin = Callable[..., Awaitable[Outside]]


@dataclass
class Receiver:
    """A receiver of OTLP. `bodies` contains the requests, and `headers` the headers of the last one."""

    port: int = 0
    bodies: list[bytes] = field(default_factory=list)
    headers: str = ""

    def spans(self) -> list[Any]:
        resources = [each for body in self.bodies for each in ExportTraceServiceRequest.FromString(body).resource_spans]
        return [span for each in resources for scope in each.scope_spans for span in scope.spans]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                _, _, rest = self.headers.partition("content-length: ")
                self.bodies.append(await reader.readexactly(int(rest.partition("\r")[0])))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


async def test_a_turn_is_a_trace(begin: Begin) -> None:
    server = Listening("ws", *METRICS)
    script = (
        Failure(529, "overloaded_error", "secret words of the service"),
        answer(Thinking(), edit_file("a.py", "1", "2")),
        say("secret words of the answer"),
    )
    async with receiving() as receiver:
        endpoint = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.port}",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=blue",
        }
        outside = await begin(*script, files={"a.py": "x = 1\n"}, connect=server.connect, env=endpoint)
        try:
            result = await outside.edit(outside.open("a.py"), "secret words of the user")
            # The metrics of the same turn are counted, too.
            assert select(await read_samples(find_port(server)), "thinklsp_turns_total") == 1
            await outside.finish()
            assert await server.end() == 143
        finally:
            await outside.stop()
            await server.stop()
    # The last spans were sent before the process ended.
    spans = receiver.spans()
    [turn] = [span for span in spans if span.name == "invoke_agent thinklsp"]
    assert {span.trace_id for span in spans} == {turn.trace_id}
    below = [span for span in spans if span is not turn]
    assert {span.parent_span_id for span in below} == {turn.span_id}
    names = [span.name for span in below]
    assert names.count(f"chat {MODEL}") == 2
    assert names.count("execute_tool edit_file") == 1
    assert names.count("session_store update") >= 3
    assert all(turn.start_time_unix_nano <= span.end_time_unix_nano <= turn.end_time_unix_nano for span in below)
    held = attributes(turn)
    assert held["gen_ai.operation.name"] == "invoke_agent"
    assert held["gen_ai.conversation.id"] == result["sessionId"]
    assert held["thinklsp.turn.outcome"] == "end_turn"
    assert held["gen_ai.usage.output_tokens"] == result["usage"]["outputTokens"]
    first, second = (attributes(span) for span in below if span.name.startswith("chat "))
    assert (first["gen_ai.provider.name"], first["gen_ai.request.model"]) == ("anthropic", MODEL)
    assert (first["thinklsp.retries"], "thinklsp.retries" in second) == (1, False)
    assert (
        first["gen_ai.usage.output_tokens"] + second["gen_ai.usage.output_tokens"] == held["gen_ai.usage.output_tokens"]
    )
    assert "x-tenant: blue" in receiver.headers
    sent = b"".join(receiver.bodies)
    assert b"thinklsp" in sent
    for text in ("secret words", str(outside.root), "a.py", outside.provider.key, server.token):
        assert text.encode() not in sent


@pytest.mark.parametrize("change", [{}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}], ids=["no package", "grpc"])
async def test_traces_that_are_not_possible_are_one_sentence(
    tmp_path: Path, environment: dict[str, str], change: dict[str, str]
) -> None:
    """The variables may be meant for another program, so the server starts."""
    program = "" if change else "import sys\nsys.modules['opentelemetry'] = None\n"
    server = Listening("tcp", argv=run_first(program))
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"} | change
    try:
        await server.start(tmp_path, environment | variables)
        first, second = server.log.splitlines()
        assert second.startswith("thinklsp: listening on ")
        assert first.startswith("thinklsp: no traces are sent")
        fix = "-m pip install 'opentelemetry-sdk" if not change else "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
        assert fix in first
    finally:
        await server.stop()


LOADED = """
import atexit, json, os, sys
real = os._exit
def leave(code):
    os.write(2, ("loaded: " + json.dumps([*sys.modules]) + "\\n").encode())
    real(code)
os._exit = leave
"""


async def test_no_library_for_teams_is_loaded_unless_it_is_asked_for(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    server = Listening("tcp", argv=run_first(LOADED))
    try:
        await server.start(tmp_path, environment)
        client = await server.connect(tmp_path, environment)
        await client.initialize(tmp_path)
        await client.command("thinklsp.sessions")
        assert await client.close() == 0
        assert await server.end() == 143
        [line] = [line for line in server.log.splitlines() if line.startswith("loaded: ")]
        loaded = json.loads(line.removeprefix("loaded: "))
        assert "thinklsp.engine.engine" in loaded
        for_teams = {
            "prometheus_client",
            "opentelemetry",
            "thinklsp.telemetry.metrics",
            "psycopg",
            "psycopg_pool",
            "jwt",
        }
        assert for_teams & set(loaded) == set()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_the_environment_says_whether_there_are_traces(variables: dict[str, str], expected: bool) -> None:
    assert has_trace_receiver(variables) is expected
