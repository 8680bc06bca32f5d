"""The request `thinklsp/renewToken`, with which an identified client stays connected after its token expires."""

from __future__ import annotations

from collections.abc import Mapping

from thinklsp.jsonrpc.error_responses import InvalidParams
from thinklsp.lsp.protocol.server_capabilities import RENEW_TOKEN
from thinklsp.lsp.server import ThinkLspServer


def register(server: ThinkLspServer) -> None:
    if (access := server.access) is None:
        # The server does not know the request if clients are not identified by tokens that expire.
        return

    @server.feature(RENEW_TOKEN)
    async def renew_token(_: ThinkLspServer, params: object) -> Mapping[str, int]:
        # pygls passes the server to a handler whose first parameter has a type like `object`.
        token = params.get("token") if isinstance(params, Mapping) else None
        if not isinstance(token, str):
            raise InvalidParams("`token` must be a string.")
        return {"expiresInSeconds": int(await access.renew(token))}
