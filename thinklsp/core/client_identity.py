"""The identity of a client, for servers that serve several users."""

from __future__ import annotations

from dataclasses import dataclass

# The tenant of all users if the tokens name no tenant.
DEFAULT_TENANT = "default"

# The environment variables with a user's names, for the commands that print keys.
TENANT_VARIABLE, USER_VARIABLE = "THINKLSP_TENANT", "THINKLSP_USER"


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The user of a client and the tenant to which the user belongs.

    A user sees only their own sessions. `groups` contains the user's teams, for budgets. On a server for one user, both
    names are `local`.
    """

    tenant: str = "local"
    user: str = "local"
    groups: tuple[str, ...] = ()


LOCAL_IDENTITY = ClientIdentity()
