"""thinklsp, with its libraries wrapped from outside: one line of JSON for each message that pygls dispatches, each
registered function that takes one, and each request that httpx sends. Written to the file that `COUNTED` names."""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import httpx
from pygls.feature_manager import FeatureManager
from pygls.protocol.json_rpc import JsonRPCProtocol

send = httpx.AsyncHTTPTransport.handle_async_request


def note(**line: Any) -> None:
    with open(os.environ["COUNTED"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def count_dispatched(name: str, method_at: int) -> None:
    """Count the calls of a method of pygls' protocol. `method_at`: which argument is the message's method."""
    original = getattr(JsonRPCProtocol, name)

    def counted(self: JsonRPCProtocol, *given: Any, **named: Any) -> None:
        note(dispatched=named.get("method_name") or given[method_at])
        original(self, *given, **named)

    setattr(JsonRPCProtocol, name, counted)


def count_registered(kind: str) -> None:
    """Count the calls of all functions that are registered with `kind`: `feature` or `command`."""
    original = getattr(FeatureManager, kind)

    def counted(self: FeatureManager, name: str, *options: Any) -> Callable[[Any], Any]:
        return lambda function: original(self, name, *options)(watched(function, name, kind))

    setattr(FeatureManager, kind, counted)


def watched(function: Any, name: str, kind: str) -> Any:
    def see(params: Any) -> None:
        note(taken=name, by=kind, is_typed=type(params).__module__ == "lsprotocol.types")

    @functools.wraps(function)
    def call(params: Any) -> Any:
        see(params)
        return function(params)

    @functools.wraps(function)
    async def wait(params: Any) -> Any:
        see(params)
        return await function(params)

    return wait if inspect.iscoroutinefunction(function) else call


async def counted_send(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
    note(sent=str(request.url))
    return await send(self, request)


if __name__ == "__main__":
    count_dispatched("_handle_request", 1)
    count_dispatched("_handle_notification", 0)
    count_registered("feature")
    count_registered("command")
    httpx.AsyncHTTPTransport.handle_async_request = counted_send
    from thinklsp.__main__ import main

    sys.exit(main())
