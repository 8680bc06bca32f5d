"""Long lists of tools, which the SDK receives as several pages."""

from __future__ import annotations

from typing import Any

import pytest

from thinklsp.mcp_client.tool_pages import MAX_TOOLS_AT_ONCE, ToolPages, is_own_cursor


def build_listing(count: int, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"tools": list(range(count)), **members}}


def request(cursor: Any, method: str = "tools/list") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": method, "params": {"cursor": cursor}}


def read_all(pages: ToolPages, message: dict[str, Any]) -> tuple[list[int], Any]:
    """Return all tools, and the cursor of the server after them."""
    result = pages.shorten(message)["result"]
    tools: list[int] = result["tools"]
    while is_own_cursor(cursor := result.get("nextCursor")):
        assert len(result["tools"]) <= MAX_TOOLS_AT_ONCE
        answer = pages.answer(request(cursor))
        assert answer is not None
        assert answer["id"] == 2
        result = answer["result"]
        tools = tools + result["tools"]
    return tools, cursor


@pytest.mark.parametrize("count", [0, 1, 25, 26, 50, 51, 1000])
@pytest.mark.parametrize("following", [None, "more"])
def test_all_tools_arrive_in_order(count: int, following: str | None) -> None:
    members = {} if following is None else {"nextCursor": following}
    assert read_all(ToolPages(), build_listing(count, **members)) == (list(range(count)), following)


@pytest.mark.parametrize(
    "message",
    [
        build_listing(25),
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}},
        {"jsonrpc": "2.0", "method": "x", "params": {"tools": [1] * 99}},
        {"id": 1, "result": [1] * 99},
        {"id": 1, "result": {"tools": "x" * 99}},
    ],
)
def test_other_messages_stay_as_they_are(message: dict[str, Any]) -> None:
    assert ToolPages().shorten(message) is message


@pytest.mark.parametrize(
    "message",
    [request("more"), request(None), request(5), request("thinklsp-page-0", "tools/call"), {"method": "tools/list"}],
)
def test_other_requests_go_to_the_server(message: dict[str, Any]) -> None:
    assert ToolPages().answer(message) is None


def test_a_page_is_answered_once() -> None:
    pages = ToolPages()
    cursor = pages.shorten(build_listing(60))["result"]["nextCursor"]
    assert pages.answer(request(cursor)) is not None
    again = pages.answer(request(cursor))
    assert again is not None
    assert "no longer known" in again["error"]["message"]


def test_pages_that_nobody_asks_for_are_forgotten() -> None:
    pages = ToolPages()
    cursors = [pages.shorten(build_listing(60))["result"]["nextCursor"] for _ in range(100)]
    answers = [pages.answer(request(cursor)) for cursor in cursors]
    assert sum(answer is not None and "result" in answer for answer in answers) == 64
