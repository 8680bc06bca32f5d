"""The session store in PostgreSQL, which several processes and users share.

Nothing else imports psycopg, and it is imported only if it is used.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from thinklsp.core.errors import SessionError, format_install_command
from thinklsp.core.server_context import LOCAL_IDENTITY, ClientIdentity
from thinklsp.sessions.encryption import KeysOutdated
from thinklsp.sessions.session_cache import SessionCache
from thinklsp.sessions.sqlite_store import open_memory
from thinklsp.sessions.store import SessionStore
from thinklsp.sessions.store_folder import KeptTexts, Leases

if TYPE_CHECKING:
    from thinklsp.sessions.postgres.team_cipher import TenantKeys

_T = TypeVar("_T")
_REQUIREMENTS = ("cryptography>=44.0.1", "psycopg[binary]>=3.2,<4", "psycopg-pool>=3.2,<4")
# A lease is renewed every 10 seconds.
LEASE_SECONDS = 30.0
# One process serves many users, so each of them caches few sessions.
_MAX_CACHED_SESSIONS = 2


def require_packages() -> None:
    """Import the optional packages. Raises SessionError with the command that installs them if one is missing."""
    try:
        from thinklsp.sessions.postgres import database  # noqa: F401, PLC0415 - only if PostgreSQL is used
    except ImportError:
        command = format_install_command(*_REQUIREMENTS)
        raise SessionError(f"Sessions in PostgreSQL need more packages. Run {command}.") from None


class PostgresStore(SessionStore):
    """A store in PostgreSQL with the sessions of one user.

    `load_url` returns the address, and `load_keys` the keys of the tenant, as `TenantKeys` describes. Both run in the
    store's thread at the first call and may take some time; stores with an equal `load_keys` share the keys. Without
    `load_keys`, new sessions are not encrypted. If the database cannot be opened and `falls_back` is true, sessions are
    kept in memory. A process that does not answer for `lease_seconds` loses its sessions to others.
    """

    def __init__(
        self,
        load_url: Callable[[], str],
        identity: ClientIdentity = LOCAL_IDENTITY,
        *,
        load_keys: Callable[[], str] | None = None,
        falls_back: bool = False,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        # The servers of a team share no folder, so no long texts are kept beside the sessions.
        super().__init__(KeptTexts(None))
        self._falls_back = falls_back
        self._lease_seconds = lease_seconds
        self.deletion_notice = "Older backups of the database can still contain the session."
        self._load_url = load_url
        self._load_keys = load_keys
        self._keys: TenantKeys | None = None
        self._identity = identity
        self._stopping = threading.Event()
        self._renewal: asyncio.Task[None] | None = None
        self._lost_ids: list[str] = []

    def _open(self) -> None:
        self._cache = SessionCache(self._problems, _MAX_CACHED_SESSIONS)
        try:
            self._open_database()
        except SessionError as error:
            if not self._falls_back:
                raise
            self._problems[f"{error} Sessions are kept in memory until thinklsp restarts."] = None
            self.deletion_notice = ""
            self._database = open_memory(self._cache, self._problems)
            self._leases = Leases()

    def _open_database(self) -> None:
        require_packages()
        from thinklsp.sessions.postgres import database, team_cipher  # noqa: PLC0415 - only if PostgreSQL is used

        if self._load_keys is not None:
            self._keys = team_cipher.share_tenant_keys(self._load_keys)
            self._keys.refresh()
        opened = database.PostgresDatabase(
            self._load_url(),
            self._identity,
            team_cipher.TeamCipher(self._identity, self._keys),
            self._stopping,
            self._lost_ids.append,
            self._lease_seconds,
        )
        self._database, self._leases = opened, opened.leases

    def _run_work(self, work: Callable[[], _T]) -> _T:
        # The keys are loaded between transactions, because their command may take a few seconds.
        if self._keys is not None:
            self._keys.refresh()
        try:
            return super()._run_work(work)
        except KeysOutdated as outdated:
            if self._keys is not None:
                self._keys.reload(outdated.tenant_key)
            return super()._run_work(work)

    async def _run(self, work: Callable[[], _T]) -> _T:
        try:
            return await super()._run(work)
        finally:
            while self._lost_ids:
                if (watcher := self.lease_watchers.get(self._lost_ids.pop())) is not None:
                    watcher()
            if self._renewal is None and not self._is_closed and self._is_open and self._leases.must_renew:
                self._renewal = asyncio.create_task(self._renew_leases())

    async def _renew_leases(self) -> None:
        """Renew the leases until there are none. A renewal that fails is repeated with the next one."""
        try:
            while self._leases.must_renew:
                await asyncio.sleep(self._lease_seconds / 3)
                with suppress(SessionError):
                    await self._run(self._leases.renew)
        finally:
            self._renewal = None

    async def aclose(self) -> None:
        self._stopping.set()
        if self._renewal is not None:
            self._renewal.cancel()
        await super().aclose()
