"""The check of the tokens with which clients open a WebSocket if `[serve.oidc]` is configured.

A refused client gets an HTTP status and one sentence, which contains no part of the token.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

from websockets.datastructures import Headers

from thinklsp.core.errors import TokenRefused
from thinklsp.identity.tokens import PERIOD_SECONDS, FailureLimit, TokenVerifier
from thinklsp.lsp.editor.client_access import ClientAccess

_log = logging.getLogger(__name__)

_TOKEN_PROTOCOL = "thinklsp.bearer."  # noqa: S105 - a prefix, not a secret
_RETRY_SECONDS = "30"


@dataclass(frozen=True, slots=True)
class LoginRefusal:
    """The response to a refused client. `headers` are additional HTTP headers."""

    status: HTTPStatus
    sentence: str
    headers: tuple[tuple[str, str], ...] = ()


class TokenGate:
    """The check of all clients' tokens."""

    def __init__(self, verifier: TokenVerifier, limit: FailureLimit | None = None) -> None:
        self._verifier = verifier
        self._limit = limit or FailureLimit()

    async def check_headers(self, headers: Headers, address: str) -> ClientAccess | LoginRefusal:
        """Return the access of a client, or the response if the client is refused."""
        is_limited = self._limit.is_exceeded(address)
        tokens = set(_find_tokens(headers))
        if len(tokens) != 1:
            return self._count(address, _build_refusal(_describe_count(len(tokens))), is_limited=is_limited)
        try:
            verified = await self._verifier.verify(tokens.pop())
        except TokenRefused as error:
            if error.is_outage:
                return LoginRefusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), (("Retry-After", _RETRY_SECONDS),))
            return self._count(address, _build_refusal(str(error)), is_limited=is_limited)
        return ClientAccess(self._verifier, verified)

    def _count(self, address: str, refusal: LoginRefusal, *, is_limited: bool) -> LoginRefusal:
        self._limit.add(address)
        if not is_limited:
            # The sentence says why, without any part of the token.
            _log.info("refused a client at %s: %s", address, refusal.sentence)
            return refusal
        return LoginRefusal(
            HTTPStatus.TOO_MANY_REQUESTS,
            "Too many tokens from this address were refused. Try again in a minute.",
            (("Retry-After", f"{PERIOD_SECONDS:.0f}"),),
        )


def _build_refusal(sentence: str) -> LoginRefusal:
    return LoginRefusal(HTTPStatus.UNAUTHORIZED, sentence, (("WWW-Authenticate", "Bearer"),))


def _describe_count(count: int) -> str:
    if count:
        return "The request contains several tokens. Send only one."
    return (
        "This server requires a token of your identity provider: the header `Authorization: Bearer …`, or the "
        "subprotocol `thinklsp.bearer.…` beside `lsp`."
    )


def _find_tokens(headers: Headers) -> Iterator[str]:
    """Yield every token in the request. A token in the query is ignored, because proxies log addresses."""
    for value in headers.get_all("Authorization"):
        scheme, _, credentials = value.partition(" ")
        if scheme.lower() == "bearer":
            yield credentials.strip()
    for value in headers.get_all("Sec-WebSocket-Protocol"):
        for name in value.split(","):
            if name.strip().startswith(_TOKEN_PROTOCOL):
                yield name.strip().removeprefix(_TOKEN_PROTOCOL)
