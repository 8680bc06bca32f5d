"""The metrics of a real server, read by Prometheus' parser: the counts, and no text of a user or a model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import edit_file, say
from tests.support.client.raw import HandshakeRefused, WebSocketWire
from tests.support.listening import Listening
from tests.support.outside import MODEL, Outside
from tests.support.signing_server import Failure, Hold, Text, Thinking, Tool, answer
from tests.telemetry.monitored import METRICS, fetch, find_port, read_samples, select

Begin = Callable[..., Awaitable[Outside]]

# Every label with all the values that it may have in this test.
LABELS = {
    "reason": {"token", "origin", "limit", "stopping", "protocol"},
    "kind": {"chat", "compact", "input", "output", "thinking", "cache_read", "cache_write"},
    "provider": {"anthropic"},
    "model": {MODEL, "other"},
    "tool": {"edit_file", "read_file", "other"},
}


@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_turns_calls_tools_and_tokens_are_counted(begin: Begin, kind: Any) -> None:
    server = Listening(kind, *METRICS)
    script = (
        Failure(529, "overloaded_error", "secret words of the service"),
        answer(Thinking(), edit_file("a.py", "1", "2"), Tool("made_up_7f3a", {})),
        say("secret words of the answer"),
    )
    outside = await begin(*script, files={"a.py": "x = 1\n"}, connect=server.connect)
    try:
        uri = outside.open("a.py")
        before = await read_samples(find_port(server))
        assert select(before, "thinklsp_clients") == 1
        result = await outside.edit(uri, "secret words of the user")
        samples = await read_samples(find_port(server))
        turn = {"kind": "chat", "outcome": "end_turn"}
        assert select(samples, "thinklsp_turns_total", **turn) == 1
        assert select(samples, "thinklsp_turn_duration_seconds_count", kind="chat") == 1
        assert select(samples, "thinklsp_turns_running") == 0
        assert select(samples, "thinklsp_model_calls_total", provider="anthropic", outcome="ok") == 2
        assert select(samples, "thinklsp_model_retries_total") == 1
        assert select(samples, "thinklsp_model_call_duration_seconds_count") == 2
        assert select(samples, "thinklsp_tool_calls_total", tool="edit_file", outcome="ok") == 1
        assert select(samples, "thinklsp_tool_calls_total", tool="other", outcome="error") == 1
        for name in ("input", "output"):
            tokens = select(samples, "thinklsp_model_tokens_total", kind=name)
            assert tokens == result["usage"][f"{name}Tokens"] > 0
        assert select(samples, "thinklsp_store_calls_total", operation="update", outcome="ok") > 2
        assert select(samples, "thinklsp_store_calls_total", outcome="failed") == 0
        body = (await fetch(find_port(server), "/metrics")).body
        ids = [result["sessionId"], result["turnId"]]
        for text in ("secret words", "made_up", str(outside.root), outside.provider.key, server.token, *ids):
            assert text.encode() not in body
        for name, held in samples:
            for label, value in held:
                assert value in LABELS.get(label, {value}), (name, label, value)
        await outside.finish()
        assert await server.end() == 143
    finally:
        await outside.stop()
        await server.stop()


async def test_a_turn_that_is_cancelled_is_counted(begin: Begin) -> None:
    server, hold = Listening("tcp", *METRICS), Hold()
    outside = await begin(answer(Thinking(), hold, Text("Late.")), connect=server.connect)
    try:
        turn = outside.client.command("thinklsp.chat", {"prompt": "x"}, token="t")
        await hold.reached.wait()
        samples = await read_samples(find_port(server))
        assert select(samples, "thinklsp_turns_running") == 1
        outside.client.notify("window/workDoneProgress/cancel", {"token": "t"})
        assert (await turn)["stopReason"] == "cancelled"
        async with asyncio.timeout(60):
            while select(samples := await read_samples(find_port(server)), "thinklsp_turns_running"):
                pass
        assert select(samples, "thinklsp_turns_total", outcome="cancelled") == 1
        assert select(samples, "thinklsp_model_calls_total", outcome="cancelled") == 1
    finally:
        await outside.stop()
        await server.stop()


async def test_clients_that_cannot_connect_are_counted(tmp_path: Path, environment: dict[str, str]) -> None:
    config = tmp_path / "limits.toml"
    config.write_text("[serve]\nmax_clients = 1\n")
    config.chmod(0o600)
    server = Listening("ws", *METRICS)
    try:
        await server.start(tmp_path, environment | {"THINKLSP_CONFIG": str(config)})
        token = f"Authorization: Bearer {server.token}"
        client = await WebSocketWire.upgraded(server.port, token)
        for headers, status in (([token], 503), ([], 401), ([token, "Origin: https://evil.example"], 403)):
            with pytest.raises(HandshakeRefused) as error:
                await WebSocketWire.upgraded(server.port, *headers)
            assert error.value.status == status
        samples = await read_samples(find_port(server))
        for reason, count in {"limit": 1, "token": 1, "origin": 1, "stopping": 0, "protocol": 0}.items():
            assert select(samples, "thinklsp_rejected_logins_total", reason=reason) == count
        ready = await fetch(find_port(server), "/ready")
        assert (ready.status, ready.json["problem"]) == (
            503,
            "This server has reached its client limit. Try again later.",
        )
        client.close()
    finally:
        await server.stop()
