"""The client's responses, and the table of our requests. `tests/lsp/test_own_requests.py` plays it in the server."""

from __future__ import annotations

import asyncio

import pytest

from thinklsp.jsonrpc.rpc_messages import ClientError, ClientResponse, PendingRequests, parse_message

DEEP = "[" * 70 + "]" * 70
# The members of a response besides its id -> whether it is an error, and its code.
RESPONSES: dict[str, tuple[str, bool, int | None]] = {
    "a result": ('"result": 7', False, None),
    "an error": ('"error": {"code": -32002, "message": "no"}', True, -32002),
    "a result, and null as the error": ('"result": 7, "error": null', False, None),
    "an error that is no object": ('"error": "no"', True, None),
    "an error without a code": ('"error": {}', True, None),
    "a code that is no number": ('"error": {"code": true}', True, None),
    "an error that occurs twice": ('"error": {"code": 1}, "error": {"code": 2}', True, None),
    "an error that is nested too deep": (f'"error": {{"code": 1, "data": {DEEP}}}', True, None),
}


@pytest.mark.parametrize(("members", "is_error", "code"), RESPONSES.values(), ids=RESPONSES)
def test_the_error_of_a_response(members: str, is_error: bool, code: int | None) -> None:
    response = parse_message(f'{{"jsonrpc": "2.0", "id": 1, {members}}}'.encode())
    assert isinstance(response, ClientResponse)
    assert (response.id, response.is_error, response.code) == (1, is_error, code)


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


async def test_an_error_keeps_its_code() -> None:
    requests = PendingRequests(lambda _: None)
    asked = asyncio.wrap_future(requests.add(number := requests.issue_id(), "test/ask"))
    requests.settle(ClientResponse(number, is_error=True, result=None, code=-32002))
    with pytest.raises(ClientError, match="rejected") as caught:
        await asked
    assert caught.value.code == -32002


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
