"""Deferred imports of the engine, which is not needed for the first code action. Call both functions in a thread."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from thinklsp.core.import_context import reduce_gc, switch_threads_often

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from thinklsp.lsp.assistant import Assistant
    from thinklsp.lsp.server import ThinkLspServer
    from thinklsp.settings.sources import CheckedSettings
    from thinklsp.settings.user_file import UserSettings


def load_settings(environment: Mapping[str, str]) -> tuple[type[CheckedSettings], UserSettings]:
    """Import the settings checker and read the user's settings. Raise SettingsError if they are invalid."""
    with _pause_collection("thinklsp.settings.sources"), switch_threads_often():
        from thinklsp.settings.sources import CheckedSettings, load_user_settings  # noqa: PLC0415 - imported late to keep the start fast
    return CheckedSettings, load_user_settings(environment)


def load_engine() -> tuple[type[Assistant], Callable[[ThinkLspServer], None]]:
    """Import the commands and the engine, including the HTTP and validation libraries."""
    with _pause_collection("thinklsp.lsp.commands"), switch_threads_often():
        from thinklsp.engine.user_config import warm_up  # noqa: PLC0415 - imported late to keep the start fast
        from thinklsp.lsp.assistant import Assistant  # noqa: PLC0415 - imported late to keep the start fast
        from thinklsp.lsp.commands import register_commands  # noqa: PLC0415 - imported late to keep the start fast

        warm_up()
    return Assistant, register_commands


def _pause_collection(name: str) -> AbstractContextManager[None]:
    """Pause garbage collection while a module is imported for the first time.

    Objects that exist at the end of the pause are never collected, so a server for many clients imports the module
    before the first client connects.
    """
    return nullcontext() if name in sys.modules else reduce_gc()
