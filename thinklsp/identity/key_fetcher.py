"""The requests to an identity provider: its configuration, which names the address of its keys, and the keys.

The requests use the proxy and the certificates of the user's settings. Redirects are refused, and answers are limited
in size and time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import TransportFailed
from thinklsp.http.transport import Timeouts, Transport
from thinklsp.settings.user_file import NetworkSection, OidcSection, find_address_problem

_MAX_BODY_BYTES = 512 * 1024
# The limit for both requests. A WebSocket handshake may take ten seconds.
_SECONDS = 6.0
_HEADERS = {"accept": "application/json"}


class KeyFetcher:
    """The HTTP client for an identity provider. Call `aclose` at the end."""

    def __init__(self, section: OidcSection, network: NetworkSection) -> None:
        self._section = section
        self._transport = Transport(
            timeouts=Timeouts(connect=_SECONDS, first_byte=_SECONDS, first_byte_local=_SECONDS, idle=_SECONDS),
            proxy=network.proxy,
            ca_bundle=network.ca_bundle,
            max_response_bytes=_MAX_BODY_BYTES,
        )

    async def fetch_key_set(self) -> Mapping[str, Any]:
        """Return the provider's key set, a JSON object with the list `keys`. Raises TransportFailed."""
        try:
            async with asyncio.timeout(_SECONDS):
                key_set = await self._fetch_object(self._section.jwks_url or await self._discover_address())
        except TimeoutError:
            raise TransportFailed(f"the identity provider sent no answer within {_SECONDS:g} seconds.") from None
        if not isinstance(key_set.get("keys"), list):
            raise TransportFailed("the answer contains no list of keys.")
        return key_set

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _discover_address(self) -> str:
        """Return the address of the keys from the provider's configuration, which must name the same issuer."""
        issuer = self._section.issuer
        found = await self._fetch_object(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise TransportFailed("the identity provider's configuration names another issuer. Check `issuer`.")
        address = found.get("jwks_uri")
        if not isinstance(address, str):
            raise TransportFailed("the identity provider's configuration names no `jwks_uri`.")
        if (problem := find_address_problem(address)) is not None:
            raise TransportFailed(f"the `jwks_uri` of the identity provider cannot be used: {problem}.")
        return address

    async def _fetch_object(self, url: str) -> Mapping[str, Any]:
        async with self._transport.get(url, _HEADERS) as answer:
            body = await answer.read(_MAX_BODY_BYTES)
            if answer.status != 200:
                raise TransportFailed(f"the identity provider answered with status {answer.status}.")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise TransportFailed("the identity provider's answer is not a JSON object.")
        return content
