"""The long texts that a session keeps, such as the result of a tool, so that the model can read them in parts.

Each text is a private file beside the session store. The files of a session are deleted with the session.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from thinklsp.core.tool_type import KEPT_PATH_PREFIX, is_kept_path
from thinklsp.settings.private_paths import make_private

MAX_SESSION_BYTES = 64 * 1024 * 1024
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class KeptTexts:
    """The texts of all sessions. Without a folder, no text is kept."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def keep(self, session_id: str, text: str) -> str | None:
        """Keep a text and return its path for the model, or None if the text cannot be kept.

        A session keeps at most 64 MiB. Beyond this limit, its oldest texts are deleted.
        """
        folder = self._find_folder(session_id)
        data = text.encode("utf-8", "replace")
        if folder is None or len(data) > MAX_SESSION_BYTES:
            return None
        name = secrets.token_hex(4)
        try:
            make_private(folder)
            _make_room(folder, len(data))
            with open(os.open(os.path.join(folder, name), _NEW_FILE, 0o600), "wb") as file:
                file.write(data)
        except OSError:
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))
            return None
        return KEPT_PATH_PREFIX + name

    def read(self, session_id: str, path: str) -> str | None:
        """Return a text, or None if the session does not keep it."""
        folder = self._find_folder(session_id)
        if folder is None or not is_kept_path(path):
            return None
        try:
            data = Path(folder, path.removeprefix(KEPT_PATH_PREFIX)).read_bytes()
        except OSError:
            return None
        return data.decode("utf-8", "replace")

    def forget(self, session_id: str) -> None:
        """Delete the texts of a session."""
        if (folder := self._find_folder(session_id)) is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _find_folder(self, session_id: str) -> str | None:
        if self._folder is None or _SESSION_ID.fullmatch(session_id) is None:
            return None
        return os.path.join(self._folder, session_id)


class SessionTexts:
    """The texts of one session, which are read and written in threads."""

    def __init__(self, texts: KeptTexts, session_id: str) -> None:
        self._texts = texts
        self._session_id = session_id

    async def keep(self, text: str) -> str | None:
        return await asyncio.to_thread(self._texts.keep, self._session_id, text)

    async def read(self, path: str) -> str | None:
        return await asyncio.to_thread(self._texts.read, self._session_id, path)


def _make_room(folder: str, size: int) -> None:
    """Delete the oldest texts of a session until a new one fits. Raises OSError."""
    with os.scandir(folder) as entries:
        files = sorted((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in entries)
    sizes = {path: os.lstat(path).st_size for _, path in files}
    total = sum(sizes.values()) + size
    for _, path in files:
        if total <= MAX_SESSION_BYTES:
            break
        os.unlink(path)
        total -= sizes[path]
