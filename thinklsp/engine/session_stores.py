"""Chooses the session store: the database that the settings name, or a file in the state folder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from thinklsp.core.client_identity import LOCAL_IDENTITY, TENANT_VARIABLE, ClientIdentity
from thinklsp.core.errors import SessionError, SettingsError
from thinklsp.sessions.postgres.postgres_store import PostgresStore
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.sessions.store import SessionStore
from thinklsp.settings.access import run_secret_command
from thinklsp.settings.budgets_section import load_budgets_section
from thinklsp.settings.store_section import StoreSection, load_store_section


@dataclass(frozen=True, slots=True)
class TenantKeyCommand:
    """The command in `[store] key_command`, for one tenant. A call runs it."""

    argv: tuple[str, ...]
    tenant: str

    def __call__(self) -> str:
        """Return what the command prints. It may take some seconds. Raises SessionError."""
        subject = f"The command in [store] key_command for the tenant {self.tenant}"
        return _run_command(subject, self.argv, {TENANT_VARIABLE: self.tenant})


def open_session_store(environment: Mapping[str, str], identity: ClientIdentity = LOCAL_IDENTITY) -> SessionStore:
    """Return the session store of a user. It performs no I/O before its first call.

    Raises SettingsError if the section `[store]` is invalid.
    """
    section = load_store_section(environment)
    if not section.is_shared:
        return SqliteStore(resolve_state_folder(environment))
    # Only teams with a budget are booked, because all calls of a team wait for the row with its spending.
    teams = load_budgets_section(environment).teams
    booked = replace(identity, groups=tuple(team for team in identity.groups if team in teams))
    command = section.key_command
    load_keys = None if command is None else TenantKeyCommand(command, identity.tenant)
    return PostgresStore(
        partial(load_store_url, section), booked, load_keys=load_keys, falls_back=section.fallback == "memory"
    )


def load_store_url(section: StoreSection) -> str:
    """Return the address of the database. Its command may take some seconds. Raises SessionError."""
    if section.url_command is None:
        return section.url or ""
    return _run_command("The command in [store] url_command", section.url_command, {})


def _run_command(subject: str, argv: tuple[str, ...], environment: Mapping[str, str]) -> str:
    try:
        return asyncio.run(run_secret_command(subject, argv, environment))
    except SettingsError as error:
        raise SessionError(str(error)) from None
