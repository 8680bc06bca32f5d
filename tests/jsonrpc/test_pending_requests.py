"""The table of our requests, as a peer on asyncio uses it. `tests/lsp/test_own_requests.py` plays it in the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from thinklsp.jsonrpc.rpc_messages import ClientError, ClientResponse, PendingRequests


def fail(result: object) -> object:
    raise ValueError(result)


async def test_a_result_is_converted() -> None:
    requests = PendingRequests(lambda _: None)
    number = requests.issue_id()
    asked = asyncio.wrap_future(requests.add(number, "test/ask", lambda result: [result]))
    requests.settle(ClientResponse(number, is_error=False, result=7))
    requests.settle(ClientResponse(number, is_error=False, result=8))
    assert await asked == [7]
    assert len(requests) == 0


@pytest.mark.parametrize(
    ("error", "code"), [({"code": -32002, "message": "no"}, -32002), ({"code": True}, None), ({}, None), (None, None)]
)
async def test_an_error_keeps_its_code(error: Any, code: int | None) -> None:
    requests = PendingRequests(lambda _: None)
    asked = asyncio.wrap_future(requests.add(number := requests.issue_id(), "test/ask"))
    requests.settle(ClientResponse(number, is_error=True, result=None, error=error))
    with pytest.raises(ClientError, match="rejected") as caught:
        await asked
    assert caught.value.code == code


async def test_a_result_that_cannot_be_converted_names_its_method() -> None:
    requests = PendingRequests(lambda _: None)
    asked = asyncio.wrap_future(requests.add(number := requests.issue_id(), "test/ask", fail))
    requests.settle(ClientResponse(number, is_error=False, result=7))
    with pytest.raises(ClientError, match="test/ask") as caught:
        await asked
    assert caught.value.code is None


async def test_only_a_cancelled_request_is_cancelled_at_the_client() -> None:
    cancelled: list[int] = []
    requests = PendingRequests(cancelled.append)
    answered, dropped = requests.issue_id(), requests.issue_id()
    first = asyncio.wrap_future(requests.add(answered, "test/ask"))
    second = asyncio.wrap_future(requests.add(dropped, "test/ask"))
    second.cancel()
    requests.settle(ClientResponse(answered, is_error=False, result=None))
    assert await first is None
    await asyncio.wait([second])
    assert cancelled == [dropped]
    requests.settle(ClientResponse(dropped, is_error=False, result=None))
    assert len(requests) == 0


@pytest.mark.parametrize("foreign", ["1000000", 5])
async def test_a_response_to_nothing_is_ignored(foreign: int | str) -> None:
    requests = PendingRequests(lambda _: None)
    number = requests.issue_id()
    future = requests.add(number, "test/ask")
    requests.settle(ClientResponse(foreign, is_error=False, result=None))
    assert number == 1_000_000
    assert not future.done()


async def test_the_oldest_of_too_many_requests_fails() -> None:
    requests = PendingRequests(lambda _: None)
    futures = [requests.add(requests.issue_id(), "test/ask") for _ in range(101)]
    assert [future.done() for future in futures] == [True] + [False] * 100
    with pytest.raises(ClientError, match="too many"):
        futures[0].result()
    assert len(requests) == 100
