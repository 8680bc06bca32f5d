"""Servers that follow redirects, which ours never does: for the control of those that must not be followed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.forking import fork_servers
from thinklsp.http import transport
from thinklsp.http.transport import Transport

_exchange = Transport._exchange


class _Moved(Exception):
    pass


def _moved(response: Any, *_: object) -> None:
    where = response.headers.get("location")
    if where is not None:
        raise _Moved(where)


@asynccontextmanager
async def _following(self: Transport, method: str, url: str, *more: Any) -> AsyncIterator[Any]:
    try:
        async with _exchange(self, method, url, *more) as answer:
            yield answer
        return
    except _Moved as moved:
        target = str(moved)
    async with _exchange(self, method, target, *more) as answer:
        yield answer


def arm() -> None:
    transport._reject_redirect = _moved
    Transport._exchange = _following  # type: ignore[method-assign] # the planted fault


if __name__ == "__main__":
    sys.exit(fork_servers(arm))
