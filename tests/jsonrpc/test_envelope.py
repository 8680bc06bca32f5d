"""What a response of the client tells: its result, and the object of its error if there is one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from thinklsp.jsonrpc.rpc_messages import ClientResponse, parse_message

DEEP = json.loads("[" * 70 + "]" * 70)
# The members of a response besides its id -> whether it is an error, and its error object.
RESPONSES: dict[str, tuple[str, bool, Any]] = {
    "a result": ('"result": 7', False, None),
    "an error": ('"error": {"code": -32002, "message": "no"}', True, {"code": -32002, "message": "no"}),
    "a result, and null as the error": ('"result": 7, "error": null', False, None),
    "an error that is no object": ('"error": "no"', True, None),
    "an error that occurs twice": ('"error": {"code": 1}, "error": {"code": 2}', True, None),
    "an error that is nested too deep": (f'"error": {{"data": {json.dumps(DEEP)}}}', True, None),
}


@pytest.mark.parametrize(("members", "is_error", "error"), RESPONSES.values(), ids=RESPONSES)
def test_the_error_of_a_response(members: str, is_error: bool, error: Any) -> None:
    response = parse_message(f'{{"jsonrpc": "2.0", "id": 1, {members}}}'.encode())
    assert isinstance(response, ClientResponse)
    assert (response.id, response.is_error, response.error) == (1, is_error, error)
