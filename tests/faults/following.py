"""Servers that follow redirects, which ours never does: for the control of those that must not be followed."""

from __future__ import annotations

import sys
from typing import Any

import httpx

from tests.support.forking import fork_servers
from thinklsp.wire import transport

_client = httpx.AsyncClient


def _following(**options: Any) -> httpx.AsyncClient:
    return _client(**options | {"follow_redirects": True})


def arm() -> None:
    transport.httpx.AsyncClient = _following  # type: ignore[misc, assignment] # the planted fault


if __name__ == "__main__":
    sys.exit(fork_servers(arm))
