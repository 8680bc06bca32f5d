"""The user, the tenant and the groups in the claims of a token whose signature has been verified.

Names are used as they are. They become part of database rows and of environment variables, so control characters and
long names are refused, never shortened or replaced: two users must not get the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.core.server_context import DEFAULT_TENANT, LOCAL_IDENTITY, ClientIdentity
from thinklsp.identity.tokens import refuse
from thinklsp.settings.user_file import OidcSection

_MAX_NAME_LENGTH = 200
_MAX_GROUPS = 500
# The end of the year 9999, the last one that Python can format.
_MAX_TIME = 253_402_300_799.0


def build_identity(claims: Mapping[str, Any], section: OidcSection) -> ClientIdentity:
    """Return the identity that the claims contain. Raises TokenRefused if a configured claim is missing or invalid."""
    user = _check_name(_find_claim(claims, section.claim_user), "the user")
    tenant = DEFAULT_TENANT
    if section.claim_tenant is not None:
        tenant = _check_name(_find_claim(claims, section.claim_tenant), "the tenant")
    identity = ClientIdentity(tenant, user, _read_groups(claims, section.groups))
    if (identity.tenant, identity.user) == (LOCAL_IDENTITY.tenant, LOCAL_IDENTITY.user):
        # These names belong to the user of a server without OIDC.
        raise refuse("its names of tenant and user are reserved")
    return identity


def read_expiry(claims: Mapping[str, Any]) -> float:
    """Return the time at which the token expires, in seconds since the epoch. Raises TokenRefused."""
    expiry: object = claims.get("exp")
    # `true` is an instance of int in Python, and JSON parsers accept NaN.
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not 0 < expiry <= _MAX_TIME:
        raise refuse("its time of expiry is invalid")
    return float(expiry)


def _find_claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim, or None. A name with dots may also be a path, for example `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _check_name(value: object, subject: str) -> str:
    if value is None:
        raise refuse(f"the claim with the name of {subject} is missing")
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME_LENGTH:
        raise refuse(f"the name of {subject} must be a text of 1 to {_MAX_NAME_LENGTH} characters")
    if not value.isprintable() or value != value.strip():
        raise refuse(f"the name of {subject} contains characters that are not allowed")
    return value


def _read_groups(claims: Mapping[str, Any], name: str | None) -> tuple[str, ...]:
    if name is None:
        return ()
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, Mapping) and name in elsewhere:
        # The provider has left out the groups of a user with many groups. Without them, team budgets would not count.
        raise refuse("it does not contain the user's groups, because there are too many")
    value = _find_claim(claims, name)
    groups = [] if value is None else value if isinstance(value, list) else [value]
    if len(groups) > _MAX_GROUPS:
        raise refuse(f"it contains more than {_MAX_GROUPS} groups")
    return tuple(dict.fromkeys(_check_name(group, "a group") for group in groups))
