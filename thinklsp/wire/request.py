"""What goes out: a request in the form of the HTTP library. Pure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, MutableMapping
from typing import Any
from urllib.parse import SplitResult, quote

import httpcore

from thinklsp import __version__
from thinklsp.core.body import Body

_PIECE = 64 * 1024
# What may stand in a path and a query; anything else is escaped.
_IN_TARGET = "%/:?#[]@!$&'()*+,;=~|"


def request_of(
    method: str,
    target: SplitResult,
    headers: Mapping[str, str],
    body: Body | None,
    extensions: MutableMapping[str, Any],
) -> httpcore.Request:
    """Raises UnicodeEncodeError for headers, another UnicodeError for a host, that cannot be written."""
    host = _host(target.hostname or "")
    named = b"[%b]" % host if b":" in host else host
    default = {"http": 80, "https": 443}[target.scheme]
    sent = {
        "host": named if target.port in (None, default) else b"%b:%d" % (named, target.port),
        "accept": b"*/*",
        "accept-encoding": b"identity",
        "user-agent": f"thinklsp/{__version__}".encode(),
        **{name.lower(): value.encode("ascii") for name, value in headers.items()},
    }
    if body is not None:
        sent["content-length"] = b"%d" % len(body)
    whole = f"{target.path or '/'}?{target.query}" if target.query else target.path or "/"
    return httpcore.Request(
        method,
        httpcore.URL(scheme=target.scheme, host=host, port=target.port, target=quote(whole, safe=_IN_TARGET)),
        headers=[(name.encode("ascii"), value) for name, value in sent.items()],
        content=None if body is None else _pieces(body),
        extensions=extensions,
    )


def _host(name: str) -> bytes:
    try:
        return name.encode("idna")
    except UnicodeError as error:
        # From Python 3.13 on it is an error of encoding, as those of headers are.
        raise UnicodeError(str(error)) from None


async def _pieces(body: Body) -> AsyncIterator[bytes]:
    for part in body.parts(_PIECE):
        yield part
