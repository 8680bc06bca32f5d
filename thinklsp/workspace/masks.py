"""What a command must not see of a workspace folder: files that hold secrets, and logins in git's configuration.

Every folder is looked into, also those of installed packages: whether a folder is one of those is up to the repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.git_config import is_config_name, without_logins
from thinklsp.workspace.paths import Root

_MAX_MASKED = 2_000
_MAX_DEPTH = 60
_MAX_FILE_BYTES = 1024**2
# Names in here come from branches and hashes.
_INSIDE_GIT = frozenset(("objects", "refs", "logs"))
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Bundles of certificates are public, and package managers need theirs.
_CERTIFICATES = (".pem", ".crt")
_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,64})-----")

Parts = tuple[str, ...]


@dataclass(slots=True)
class Masks:
    """`hidden`: paths below the folder, those of folders ending in a slash. `replaced`: paths and what is shown."""

    hidden: list[str] = field(default_factory=list)
    replaced: dict[str, bytes] = field(default_factory=dict)


def find_masks(root: Root) -> Masks:
    """Raise PathRefused if there are more than can be hidden."""
    search = _Search(
        root, Masks(), lru_cache(1 << 16)(lambda name: root.protected.is_candidate(name) or is_config_name(name))
    )
    with root.opened() as descriptor:
        search.look_into(descriptor, ())
    return search.found


@dataclass(frozen=True, slots=True)
class _Search:
    root: Root
    found: Masks
    is_candidate: Callable[[str], bool]

    def look_into(self, descriptor: int, parts: Parts) -> None:
        """Walk by descriptors, so that no link is followed."""
        folders: list[str] = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif self.is_candidate(entry.name):
                    self._file(descriptor, (*parts, entry.name))
        for name in folders:
            self._folder(descriptor, (*parts, name))
        if len(self.found.hidden) > _MAX_MASKED:
            raise PathRefused(f"The folder holds more than {_MAX_MASKED} files with secrets; no command is run in it.")

    def _file(self, above: int, parts: Parts) -> None:
        path = "/".join(parts)
        if self.root.protected.reading_refused(parts) is not None:
            if not _is_public(above, parts[-1]):
                self.found.hidden.append(path)
        elif self.root.is_git_config(parts):
            data = _content(above, parts[-1])
            if data is None:
                self.found.hidden.append(path)
            elif (shown := without_logins(data)) != data:
                self.found.replaced[path] = shown

    def _folder(self, above: int, parts: Parts) -> None:
        name = parts[-1]
        # Some names are secret for files only, hence the component below.
        is_secret = self.is_candidate(name) and self.root.protected.reading_refused((*parts, "-")) is not None
        if is_secret or len(parts) > _MAX_DEPTH:
            self.found.hidden.append("/".join(parts) + "/")
            return
        if name in _INSIDE_GIT and ".git" in parts:
            return
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=above)
        except OSError:
            # Gone, or closed to the command as well, which runs as the same user.
            return
        try:
            self.look_into(descriptor, parts)
        finally:
            os.close(descriptor)


def _is_public(above: int, name: str) -> bool:
    """Whether a file holds certificates and nothing else that PEM can hold."""
    if not name.lower().endswith(_CERTIFICATES):
        return False
    kinds = _PEM_BLOCK.findall(_content(above, name) or b"")
    return bool(kinds) and all(kind.endswith((b"CERTIFICATE", b"X509 CRL")) for kind in kinds)


def _content(above: int, name: str) -> bytes | None:
    """None if the file cannot be read, or is too long to be looked through."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=above)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        try:
            data = file.read(_MAX_FILE_BYTES + 1)
        except OSError:
            return None
    return data if len(data) <= _MAX_FILE_BYTES else None
