"""The contents of a shadow copy, which commands can change instead of the workspace.

The contents are the files that differ from the disk, and a copy of all files if the system does not support overlay
mounts. Masks hide secrets and logins. Every folder is searched for secrets, because a repository can make any folder
look like installed packages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.ignore import IgnoreRules
from thinklsp.workspace.overlay import EditOverlay, has_bom
from thinklsp.workspace.paths import Listing, Root
from thinklsp.workspace.protected import is_config_name, strip_logins
from thinklsp.workspace.uri import RelPath
from thinklsp.workspace.view import Place

MAX_COPY_BYTES = 200 * 1024 * 1024
# Each file counts as at least a disk block, which bounds the number of files too.
_MIN_FILE_BYTES = 4096
_MAX_EXCLUDED_FOLDERS = 200
_BOM = "\ufeff"
_NEW_MODE = 0o644
# Folders that builds write to. The sandbox must not mount them read-only.
_BUILD_FOLDERS = frozenset(("target", "build", "dist", "out", "obj", "coverage", ".next", ".nuxt", ".gradle", ".cache"))
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


def copy_folder(
    root: Root, target: str, *, limit: int = MAX_COPY_BYTES, should_stop: Callable[[], bool] = lambda: False
) -> list[str]:
    """Copy the files that git lists to the empty folder `target`, without secrets, links and special files.

    Returns folders that were not copied and can be mounted directly, such as git's own folder and installed packages.
    Raises PathRefused if the files exceed `limit` bytes. Stops early if `should_stop` returns True.
    """
    rules = IgnoreRules(root)
    excluded_folders: list[str] = []
    left = limit
    waiting: list[Parts] = [()]
    while waiting and not should_stop():
        folder = waiting.pop()
        listing = _list_folder(root, folder)
        included = rules.filter_listing(folder, listing)
        for parts in ((*folder, name) for name in included.files):
            if root.protected.explain_read_refusal(parts) is None:
                left -= _copy_file(root, parts, target, left)
        for name in listing.directories:
            parts = (*folder, name)
            if root.protected.explain_read_refusal(parts) is not None:
                continue
            os.makedirs(os.path.join(target, *parts), exist_ok=True)
            if name in included.directories:
                waiting.append(parts)
            elif name not in _BUILD_FOLDERS and len(excluded_folders) < _MAX_EXCLUDED_FOLDERS:
                excluded_folders.append("/".join(parts))
    return excluded_folders


def _copy_file(root: Root, parts: Parts, target: str, limit: int) -> int:
    """Copy a file and return its size on disk. Raises PathRefused if it is larger than `limit` bytes."""
    try:
        data = root.read(RelPath.build(parts), limit=MAX_COPY_BYTES)
    except PathRefused:
        return 0
    if data is None:
        return 0
    if (size := max(len(data), _MIN_FILE_BYTES)) > limit:
        raise PathRefused(
            f"Commands cannot run: git does not ignore more than {MAX_COPY_BYTES // 1024**2} MB of the workspace "
            "(at least 4 kB for each file), which is too much to copy. Overlay mounts, which need no copy, require "
            "Linux 5.11 and a state folder (THINKLSP_STATE_DIR) on a local disk."
        )
    path = os.path.join(target, *parts)
    with open(path, "xb") as file:
        file.write(data)
    # Make the copy executable if the original file is executable.
    with suppress(OSError):
        if os.stat(os.path.join(root.path, *parts), follow_symlinks=False).st_mode & 0o100:
            os.chmod(path, 0o700)
    return size


def _list_folder(root: Root, folder: Parts) -> Listing:
    """List a folder. The result is empty if the folder is not readable."""
    try:
        listing = root.list(RelPath.build(folder))
    except PathRefused:
        listing = None
    return listing or Listing((), ())


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

    def select(self, folders: Iterable[str]) -> Masks:
        """Return the masks for paths in `folders`."""
        starts = tuple(f"{folder}/" for folder in folders)
        hidden = [path for path in self.hidden if path.startswith(starts)]
        return Masks(hidden, {path: data for path, data in self.replaced.items() if path.startswith(starts)})


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
