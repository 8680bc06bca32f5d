"""What a shadow of the workspace is made of: the files that differ from disk, and a plain copy where the system cannot
lay an overlay over it. Reads through the gate; writes only into a folder of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.ignore import IgnoreRules
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Listing, Root
from thinklsp.workspace.relpath import RelPath
from thinklsp.workspace.view import Place

COPY_LIMIT = 200 * 1024 * 1024
_MOST_SHOWN = 200
_BOM = "\ufeff"
_NEW_MODE = 0o644
# What is built anew where it lacks. A build writes into it, so that it cannot be shown as it is.
_BUILT = frozenset(("target", "build", "dist", "out", "obj", "coverage", ".next", ".nuxt", ".gradle", ".cache"))
_BOM_BYTES = _BOM.encode()

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How one file of a folder has to be in the shadow. `data` None: not there. `mode`: its mode bits."""

    root: Root
    parts: Parts
    data: bytes | None
    mode: int


def wanted(overlay: EditOverlay, known: Iterable[Place]) -> Iterator[tuple[Place, Wanted]]:
    """Every file that is not what it is on disk, and those of `known`, which a shadow was given before. What may not be
    read is left out."""
    places = {place.key: place for place in (*known, *overlay.view.unlike_disk(), *overlay.changed())}
    for place in places.values():
        if place.root is None or place.path is None:
            continue
        with suppress(PathRefused):
            yield place, Wanted(place.root, place.path.parts, content(overlay, place), _mode(overlay.origin(place)))


def content(overlay: EditOverlay, place: Place) -> bytes | None:
    """What the file holds after the turn, None where there is none. Raises PathRefused where it may not be read, or is
    no text."""
    found = overlay.read(place)
    if found is None or place.root is None or place.path is None:
        return None
    data = found.text.encode("utf-8", "replace")
    # Editors keep the mark of a file, and do not count it to the text.
    marked = found.bom or _is_marked(overlay.origin(place))
    return _BOM_BYTES + data if marked and not data.startswith(_BOM_BYTES) else data


def _is_marked(place: Place) -> bool:
    data = None
    with suppress(PathRefused):
        data = None if place.root is None or place.path is None else place.root.read(place.path)
    return data is not None and data.startswith(_BOM_BYTES)


def _mode(place: Place) -> int:
    """Of the file on disk; those of a new one where there is none."""
    found = None
    with suppress(PathRefused):
        found = None if place.root is None or place.path is None else place.root.stat(place.path)
    return _NEW_MODE if found is None or found.kind != "file" else found.mode


@dataclass(slots=True)
class Copied:
    """`left_out`: what the copy lacks and what is there to be read as it is: folders that git leaves out, such as
    installed packages, and git's own."""

    size: int = 0
    files: int = 0
    left_out: list[str] = field(default_factory=list)


def copy(root: Root, target: str, *, limit: int = COPY_LIMIT, stopped: Callable[[], bool] = lambda: False) -> Copied:
    """Copies what git would list, without secrets, links and special files, into the empty folder `target`. Raises
    PathRefused where it is more than `limit` bytes. Ends early once it is `stopped`."""
    rules = IgnoreRules(root)
    done = Copied()
    waiting: list[Parts] = [()]
    while waiting and not stopped():
        folder = waiting.pop()
        listing = _listing(root, folder)
        kept = rules.kept(folder, listing)
        for name in kept.files:
            parts = (*folder, name)
            if root.protected.reading_refused(parts) is None:
                _copy_file(root, parts, target, done, limit)
        for name in listing.directories:
            parts = (*folder, name)
            if root.protected.reading_refused(parts) is not None:
                continue
            os.makedirs(os.path.join(target, *parts), exist_ok=True)
            if name in kept.directories:
                waiting.append(parts)
            elif name not in _BUILT and len(done.left_out) < _MOST_SHOWN:
                done.left_out.append("/".join(parts))
    return done


def _copy_file(root: Root, parts: Parts, target: str, done: Copied, limit: int) -> None:
    try:
        data = root.read(RelPath.of(parts), limit=limit)
    except PathRefused:
        return
    if data is None:
        return
    done.size += len(data)
    done.files += 1
    if done.size > limit:
        raise PathRefused(
            f"The workspace holds more than {limit // 1024**2} MB outside of what git ignores, too much to be copied, "
            "and this system cannot lay an overlay over it; so no command can be run."
        )
    path = os.path.join(target, *parts)
    with open(path, "xb") as file:
        file.write(data)
    # Only whether it can be run; what it is has been read through the gate.
    with suppress(OSError):
        if os.stat(os.path.join(root.path, *parts), follow_symlinks=False).st_mode & 0o100:
            os.chmod(path, 0o700)


def _listing(root: Root, folder: Parts) -> Listing:
    """Empty for a folder that cannot be looked into."""
    try:
        found = root.list(RelPath.of(folder))
    except PathRefused:
        found = None
    return found or Listing((), ())
