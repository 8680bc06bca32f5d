"""The server itself: faults on the wire, clients that leave, the record, and what is no good HTTP."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from tests.stand_in_checks.talk import HEADERS, LOOP, parsed, request
from tests.stand_ins.http_server import MAX_BODY_BYTES, Simulator
from thinklsp.core.errors import ThinkLspError
from thinklsp.offline.scenario import parse_scenario

STEP = "[[turn]]\n[[turn.step]]\n"
BLOCK = 'block=[{thinking="Some thinking here."},{text="And an answer."}]\n'
SLOW = f"{STEP}pacing={{interval_ms=60000}}\n{BLOCK}"


def simulated(scenario: str = LOOP) -> Simulator:
    return Simulator(parse_scenario(scenario, "test"))


def client(simulator: Simulator) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=simulator.base_url, headers=HEADERS, trust_env=False, timeout=60)


async def events(http: httpx.AsyncClient, body: dict[str, Any]) -> list[Any]:
    """All events of one stream; a torn connection raises what httpx raises."""
    seen = b""
    async with http.stream("POST", "/v1/messages", json={**body, "stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["request-id"].startswith("req_")
        assert response.headers["content-type"].startswith("text/event-stream")
        async for data in response.aiter_bytes():
            seen += data
    return [parsed(piece + b"\n\n") for piece in seen.split(b"\n\n") if piece]


def counted(seen: list[Any]) -> list[str]:
    return [event["type"] for event in seen if event["type"] != "ping"]


@pytest.mark.parametrize("count", [0, 1, 3, 99])
async def test_a_clean_cut_ends_the_stream_without_its_last_event(count: int) -> None:
    async with simulated(f"{STEP}fault={{cut_after_events={count}}}\n{BLOCK}") as simulator, client(simulator) as http:
        kinds = counted(await events(http, request()))
    assert len(kinds) == min(count, 10)
    assert count == 99 or "message_stop" not in kinds


async def test_a_torn_connection_is_no_end_of_a_body() -> None:
    scenario = f"{STEP}fault={{times=1, cut_after_events=3, cut_cleanly=false}}\n{BLOCK}"
    async with simulated(scenario) as simulator, client(simulator) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await events(http, request())
        assert counted(await events(http, request()))[-1] == "message_stop"
        assert [r.closed_by_client for r in simulator.requests] == [False, False]


async def test_silence_is_broken_by_pings_only_and_the_answer_goes_on() -> None:
    scenario = f"{STEP}pacing={{ping_every_ms=20}}\nfault={{silence_ms=110, silence_after_events=2}}\n{BLOCK}"
    async with simulated(scenario) as simulator, client(simulator) as http:
        kinds = [event["type"] for event in await events(http, request())]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds.count("ping") == 6
    assert kinds[-1] == "message_stop"


async def test_hidden_thinking_takes_its_time_and_pings() -> None:
    scenario = f"{STEP}pacing={{chunk_chars=4, interval_ms=20, ping_every_ms=30}}\nblock=[{{thinking='{'x' * 40}'}}]"
    async with simulated(scenario) as simulator, client(simulator) as http:
        seen = await events(http, request())
        await simulator.wait_until(lambda requests: requests[0].finished_at is not None)
        took = simulator.requests[0].finished_at - simulator.requests[0].received_at
    assert took >= 0.2
    assert [event["type"] for event in seen].count("ping") == 7
    assert counted(seen).count("content_block_delta") == 2


async def test_an_error_in_any_form_reaches_the_client() -> None:
    gateway = f'{STEP}fault={{http_error={{status=502, body="<html>bad gateway</html>"}}}}\n'
    scenario = f"{gateway}{STEP}fault={{http_error={{status=402}}}}\n"
    async with simulated(scenario) as simulator, client(simulator) as http:
        answer = await http.post("/v1/messages", json=request("one"))
        assert (answer.status_code, answer.text) == (502, "<html>bad gateway</html>")
        one, two = ({"role": "user", "content": text} for text in ("one", "two"))
        messages = [one, {"role": "assistant", "content": "x"}, two]
        answer = await http.post("/v1/messages", json=request(messages=messages))
        assert (answer.status_code, answer.json()["error"]["type"]) == (402, "billing_error")


async def test_a_client_that_leaves_in_mid_stream_is_noticed_at_once() -> None:
    async with simulated(SLOW) as simulator, client(simulator) as http:
        async with http.stream("POST", "/v1/messages", json=request(stream=True)) as response:
            async with aclosing(response.aiter_bytes()) as data:
                await anext(data)
            left = asyncio.get_running_loop().time()
        await simulator.wait_until(lambda requests: requests[0].closed_by_client)
        recorded = simulator.requests[0]
        assert recorded.closed_at is not None
        assert recorded.closed_at - left < 1
        assert (recorded.status, recorded.finished_at) == (200, None)


async def test_a_client_that_leaves_before_the_first_byte_is_noticed() -> None:
    async with simulated(f"{STEP}pacing={{delay_ms=60000}}\n{BLOCK}") as simulator, client(simulator) as http:
        asking = asyncio.ensure_future(http.post("/v1/messages", json=request()))
        await simulator.wait_for_requests(1)
        asking.cancel()
        await asyncio.wait({asking})
        await simulator.wait_until(lambda requests: requests[0].closed_by_client)
        assert simulator.requests[0].status is None


async def test_leaving_the_simulator_ends_open_streams() -> None:
    async with simulated(SLOW) as simulator:
        http = client(simulator)
        asking = asyncio.ensure_future(events(http, request()))
        await simulator.wait_until(lambda requests: bool(requests and requests[0].status))
    with pytest.raises(httpx.TransportError):
        await asking
    await http.aclose()
    assert not simulator.requests[0].closed_by_client


async def test_the_record_over_http_hides_keys_and_can_be_reset() -> None:
    async with simulated() as simulator, client(simulator) as http:
        body = request("plain")
        await http.post("/v1/messages?beta=true", json=body, headers={"authorization": "Bearer sk-ant-0123456789"})
        await simulator.wait_until(lambda requests: requests[0].finished_at is not None)
        (entry,) = (await http.get("/__simulator/requests")).json()
        assert (entry["method"], entry["path"], entry["status"]) == ("POST", "/v1/messages?beta=true", 200)
        assert entry["body"] == body
        assert entry["played"] == "turn 2, step 1"
        assert entry["received_at"] <= entry["answered_at"] <= entry["finished_at"]
        assert entry["headers"]["x-api-key"] == "s… (7 characters)"
        assert entry["headers"]["authorization"] == "Bear… (24 characters)"
        assert simulator.requests[0].headers["x-api-key"] == "sk-test"
        assert (await http.post("/__simulator/reset")).json() == {"reset": True}
        assert (await http.get("/__simulator/requests")).json() == []
        assert (await http.get("/__simulator/other")).status_code == 404
        assert (await http.get("/__simulator/requests", headers={"host": "example.org"})).status_code == 403


async def test_one_connection_serves_many_requests_and_pipelined_ones() -> None:
    async with simulated() as simulator:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(simulator.base_url.rsplit(":")[-1]))
        body = json.dumps(request("plain")).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        one = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        writer.write(one * 3)
        await simulator.wait_until(lambda requests: sum(r.finished_at is not None for r in requests) == 3)
        for _ in range(3):
            assert await reader.readline() == b"HTTP/1.1 200 \r\n"
            answer = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.write(one[: -len(body)].replace(b"Host", b"Expect: 100-continue\r\nHost"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.close()
        await writer.wait_closed()
        assert all(not recorded.closed_by_client for recorded in simulator.requests)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 70_000, 431),
        (b"GET /v1/other HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /v1/messages HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    ],
)
async def test_what_is_no_good_request_is_answered_as_such(head: bytes, status: int) -> None:
    async with simulated() as simulator:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(simulator.base_url.rsplit(":")[-1]))
        writer.write(head)
        assert (await reader.readline()).split()[1] == str(status).encode()
        assert b'"type": "error"' in await reader.readuntil(b"request_id")
        writer.close()
        await writer.wait_closed()


async def test_a_body_over_the_limit_is_413() -> None:
    async with simulated() as simulator, client(simulator) as http:
        answer = await http.post("/v1/messages", content=b" " * (MAX_BODY_BYTES + 1))
        assert answer.status_code == 413
        assert answer.json()["error"]["type"] == "request_too_large"


async def test_a_taken_port_is_told_in_a_sentence() -> None:
    async with simulated() as first:
        port = int(first.base_url.rsplit(":")[-1])
        with pytest.raises(ThinkLspError, match="Choose another port"):
            await Simulator(parse_scenario(LOOP, "test"), port).__aenter__()


async def test_waiting_in_vain_is_told() -> None:
    async with simulated() as simulator:
        with pytest.raises(TimeoutError):
            await simulator.wait_for_requests(1, timeout=0.01)
