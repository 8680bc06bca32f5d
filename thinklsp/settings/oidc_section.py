"""The section `[serve.oidc]`, which identifies the clients of `thinklsp --ws` by tokens of an identity provider.

The signature algorithms are not a setting. Only RS256 and ES256 are accepted, so that no token can choose a weaker one.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, LiteralString
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from thinklsp.settings.section import Section

_ClaimName = Annotated[str, Field(min_length=1, max_length=200)]


def _check_address(address: str) -> str:
    """Return the address if it is allowed. HTTP is allowed only for this machine."""
    if (problem := find_address_problem(address)) is not None:
        raise PydanticCustomError("oidc_address", problem)
    return address


def find_address_problem(address: str) -> LiteralString | None:
    """Return why an address of the identity provider cannot be used, as a part of a sentence, or None."""
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - raises ValueError for an invalid port
    except ValueError:
        return "the address is invalid; it should look like https://login.example.com"
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "the address must start with https:// and contain a host name"
    if "@" in parts.netloc:
        return "the address contains a user name or password; remove them"
    if "?" in address or "#" in address or not address.isprintable() or " " in address:
        return "the address must contain no query, no fragment and no spaces"
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        return "http is allowed only for this machine; use https"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


_Address = Annotated[str, Field(max_length=2_000), AfterValidator(_check_address)]


class OidcSection(Section):
    """The section `[serve.oidc]`. The claims name the user, the tenant and the groups in a token."""

    issuer: _Address = Field(
        description="Address of the identity provider, exactly as in the claim `iss` of its tokens: https, or http on "
        "this machine."
    )
    audience: str = Field(
        min_length=1, max_length=2_000, description="Value that the claim `aud` of a token must contain."
    )
    claim_tenant: _ClaimName | None = Field(
        None, description="Claim with the name of the user's tenant. Without it, all users belong to one tenant."
    )
    claim_user: _ClaimName = Field("sub", description="Claim with the name of the user, which never changes.")
    groups: _ClaimName | None = Field(None, description="Claim with the list of the user's groups.")
    jwks_url: _Address | None = Field(
        None,
        description="Address of the provider's public keys. Without it, the address comes from the issuer's "
        "`/.well-known/openid-configuration`.",
    )
