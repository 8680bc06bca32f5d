"""The user's settings as they are now, and what follows from them for all turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.log_level import log_level
from thinklsp.http.gathering import load
from thinklsp.http.routes import well_known
from thinklsp.http.transport import Transport
from thinklsp.providers.catalog import Catalogue, lookup
from thinklsp.settings import UserSettings, config_path, load_user_settings
from thinklsp.settings.toml_file import Stamp, file_stamp
from thinklsp.settings.user_file import KeyedProvider
from thinklsp.tools.registry import TOOLS, tool_specs
from thinklsp.workspace.protected import ProtectedPaths

_QUIET_SECONDS = 0.05
_MAX_WAITS = 10


@dataclass(frozen=True, slots=True)
class Current:
    """What a turn that begins now works with, to its end."""

    user: UserSettings
    catalogue: Catalogue
    transport: Transport


class UserConfig:
    """The user's file, read again when it has changed. Mutable: `now`, and `problem`, why a changed file is not used.

    One per engine, which calls `refresh` before each turn. Raises SettingsError for a file that cannot be used.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._path = config_path(environment)
        # Taken before the file is read: a change after that is seen by the next look.
        self._stamp = file_stamp(self._path)
        user, catalogue = _read(environment)
        self._transports = [_transport(user)]
        self._looking = asyncio.Lock()
        self.problem: str | None = None
        self.now = self._current(user, catalogue)

    async def aclose(self) -> None:
        for transport in self._transports:
            await transport.aclose()

    async def refresh(self) -> tuple[str, ...]:
        """Read the file again if it has changed. Return what there is to tell of it: the problems that are new, or why
        the former settings stay. The event loop never waits for the disk."""
        async with self._looking:
            stamp = await asyncio.to_thread(file_stamp, self._path)
            if stamp == self._stamp:
                return ()
            self._stamp = await self._settled(stamp)
            former = self.now.user
            try:
                user, catalogue = await asyncio.to_thread(_read, former.environment)
            except ThinkLspError as error:
                self.problem = f"{error} Your former settings stay in force."
                return (self.problem,)
            if user.file.network != former.file.network:
                # Turns that run keep the former one, so it is closed with the engine.
                self._transports.append(_transport(user))
            self.problem = None
            self.now = self._current(user, catalogue)
            return tuple(problem for problem in user.problems if problem not in former.problems)

    async def _settled(self, stamp: Stamp) -> Stamp:
        """Wait until nobody has written the file for a moment: editors empty a file before they fill it."""
        for _ in range(_MAX_WAITS):
            await asyncio.sleep(_QUIET_SECONDS)
            former, stamp = stamp, await asyncio.to_thread(file_stamp, self._path)
            if stamp == former:
                break
        return stamp

    def _current(self, user: UserSettings, catalogue: Catalogue) -> Current:
        logging.getLogger("thinklsp").setLevel((log_level(user.environment) or user.file.log.level).upper())
        return Current(user, catalogue, self._transports[-1])


def _read(environment: Mapping[str, str]) -> tuple[UserSettings, Catalogue]:
    user = load_user_settings(environment)
    return user, Catalogue({str(name): rows for name, rows in user.file.models.items()})


def _transport(user: UserSettings) -> Transport:
    return Transport(proxy=user.file.network.proxy, ca_bundle=user.file.network.ca_bundle)


def prepare() -> None:
    """Load the tables, schemas and libraries that every first turn needs and no setting changes.

    Call it in the thread that loads the engine: it would block the event loop. A second call takes no time.
    """
    tool_specs(TOOLS)
    for provider in get_args(KeyedProvider):
        lookup(provider, "")
    ProtectedPaths()
    well_known()
    load()
