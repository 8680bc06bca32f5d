"""What the first code action is served without: each imported by whoever needs it first, inside a function."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from thinklsp.core.loading import aside, uncollected

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from thinklsp.lsp.editor.checked_settings import CheckedSettings
    from thinklsp.lsp.face import Face
    from thinklsp.settings import UserSettings


def checked_settings(environment: Mapping[str, str]) -> tuple[type[CheckedSettings], UserSettings]:
    """Load what checks settings, a small part of the engine, and read the user's. In a thread. Raises SettingsError."""
    with _loading("thinklsp.lsp.editor.checked_settings"), aside():
        from thinklsp.lsp.editor.checked_settings import CheckedSettings  # noqa: PLC0415 - see above
        from thinklsp.settings import load_user_settings  # noqa: PLC0415 - see above
    return CheckedSettings, load_user_settings(environment)


def face() -> type[Face]:
    """HTTP, validation and the rest of the engine. In a thread: whoever asks for code actions meanwhile is served."""
    with _loading("thinklsp.lsp.face"), aside():
        from thinklsp.engine.user_config import prepare  # noqa: PLC0415 - see above
        from thinklsp.lsp.face import Face  # noqa: PLC0415 - see above

        prepare()
    return Face


def whole() -> ModuleType:
    """All of the protocol, by pygls: the most of all there is to load, and seldom needed."""
    with _loading("thinklsp.lsp.protocol.whole"):
        from thinklsp.lsp.protocol import whole  # noqa: PLC0415 - see above

    return whole


def turn_titles() -> ModuleType:
    from thinklsp.lsp.actions import turn_titles  # noqa: PLC0415 - see above

    return turn_titles


def code_lenses() -> ModuleType:
    from thinklsp.lsp.chats import code_lenses  # noqa: PLC0415 - see above

    return code_lenses


def _loading(name: str) -> AbstractContextManager[None]:
    """Where clients come and go it has been there before the first of them: what is left out of collection then is kept
    for good."""
    return nullcontext() if name in sys.modules else uncollected()
