"""The contents of a shadow copy, which commands can change instead of the workspace.

The contents are the files that differ from the disk. Masks hide secrets and logins. Every folder is searched for
secrets, because a repository can make any folder look like installed packages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.overlay import EditOverlay, has_bom
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import is_config_name, strip_logins
from thinklsp.workspace.view import Place

_BOM = "\ufeff"
_NEW_MODE = 0o644
_BOM_BYTES = _BOM.encode()

Parts = tuple[str, ...]


def collect_files(overlay: EditOverlay, copied_places: Iterable[Place]) -> Iterator[tuple[Place, bytes | None, int]]:
    """Yield the files whose text differs from the disk, and the files that were copied earlier.

    Each file comes with its bytes, or None if it does not exist, and its permissions. Files that tools may not read are
    skipped.
    """
    places = {place.key: place for place in (*copied_places, *overlay.view.list_open_places(), *overlay.list_changed())}
    for place in (place for place in places.values() if place.root is not None):
        with suppress(PathRefused):
            yield place, read_content(overlay, place), _find_mode(overlay.find_origin(place))


def read_content(overlay: EditOverlay, place: Place) -> bytes | None:
    """Return the bytes of a file with the turn's edits, or None if the file does not exist.

    Raises PathRefused if tools may not read the file or if it is not text.
    """
    current = overlay.read(place)
    if current is None or place.root is None or place.path is None:
        return None
    data = current.text.encode("utf-8", "replace")
    marked = current.has_bom or has_bom(overlay.find_origin(place))
    return _BOM_BYTES + data if marked and not data.startswith(_BOM_BYTES) else data


def _find_mode(place: Place) -> int:
    """Return the permissions of the file on disk, or the permissions for new files if it does not exist."""
    status = None
    with suppress(PathRefused):
        status = place.stat()
    return _NEW_MODE if status is None or status.kind != "file" else status.mode


_MAX_MASKED = 2_000
_MAX_DEPTH = 60
_MAX_FILE_BYTES = 1024**2
# Folders in a git directory that contain files named after branches and hashes.
_INSIDE_GIT = frozenset(("objects", "refs", "logs"))
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Files that may contain only public certificates, which package managers need.
_CERTIFICATES = (".pem", ".crt")
_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,64})-----")


@dataclass(slots=True)
class Masks:
    """The paths that the sandbox must hide or replace.

    In `hidden`, the paths of folders end with a slash. `replaced` maps paths to their new contents.
    """

    hidden: list[str] = field(default_factory=list)
    replaced: dict[str, bytes] = field(default_factory=dict)


def find_masks(root: Root) -> Masks:
    """Search a folder for secrets. Raises PathRefused if there are more secrets than the sandbox can hide."""
    search = _MaskSearch(
        root, Masks(), lru_cache(1 << 16)(lambda name: root.protected.is_candidate(name) or is_config_name(name))
    )
    with root.open_folder() as descriptor:
        search.search_folder(descriptor, ())
    return search.masks


@dataclass(frozen=True, slots=True)
class _MaskSearch:
    root: Root
    masks: Masks
    is_candidate: Callable[[str], bool]

    def search_folder(self, descriptor: int, parts: Parts) -> None:
        """Search a folder by descriptor, so that links are not followed."""
        folders: list[str] = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif self.is_candidate(entry.name):
                    self._check_file(descriptor, (*parts, entry.name))
        for name in folders:
            self._check_folder(descriptor, (*parts, name))
        if len(self.masks.hidden) > _MAX_MASKED:
            raise PathRefused(f"Commands cannot run: the folder has more than {_MAX_MASKED} files with secrets.")

    def _check_file(self, above: int, parts: Parts) -> None:
        path = "/".join(parts)
        if self.root.protected.explain_read_refusal(parts) is not None:
            if not _is_public(above, parts[-1]):
                self.masks.hidden.append(path)
        elif self.root.is_git_config(parts):
            data = _read_small_file(above, parts[-1])
            if data is None:
                self.masks.hidden.append(path)
            elif (redacted := strip_logins(data)) != data:
                self.masks.replaced[path] = redacted

    def _check_folder(self, above: int, parts: Parts) -> None:
        name = parts[-1]
        # Check the path of a file in the folder, because some patterns for secrets match only files.
        is_secret = self.is_candidate(name) and self.root.protected.explain_read_refusal((*parts, "-")) is not None
        if is_secret or len(parts) > _MAX_DEPTH:
            self.masks.hidden.append("/".join(parts) + "/")
            return
        if name in _INSIDE_GIT and ".git" in parts:
            return
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=above)
        except OSError:
            # Skip an unreadable folder, because commands of the same user cannot read it either.
            return
        try:
            self.search_folder(descriptor, parts)
        finally:
            os.close(descriptor)


def _is_public(above: int, name: str) -> bool:
    """Return True if a file contains only public certificates."""
    if not name.lower().endswith(_CERTIFICATES):
        return False
    kinds = _PEM_BLOCK.findall(_read_small_file(above, name) or b"")
    return bool(kinds) and all(kind.endswith((b"CERTIFICATE", b"X509 CRL")) for kind in kinds)


def _read_small_file(above: int, name: str) -> bytes | None:
    """Return the contents of a file, or None if the file is too large or not readable."""
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
