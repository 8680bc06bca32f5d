"""What git knows of the workspace, asked so that a repository cannot run anything: which files differ from HEAD.

git is asked about its index and its objects alone, and never looks at a file: that would start filters, textconv and
file watchers which the repository's own configuration names. Which files may differ is told by their size and time;
their texts come through the gate, unsaved ones included, and the diff is our own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thinklsp.core.edits import EditSet, FileEdit
from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.unified import diff
from thinklsp.tools.child import started
from thinklsp.tools.programs import find_program
from thinklsp.tools.shown import shown_name
from thinklsp.workspace.forms import same_but_for_form
from thinklsp.workspace.ignore import IgnoreRules
from thinklsp.workspace.paths import EDIT_LIMIT, Root
from thinklsp.workspace.relpath import RelPath
from thinklsp.workspace.view import FolderView, Place, WorkspaceView

_SECONDS = 10
_CHUNK = 1 << 16
_MOST_OUTPUT = 64 * 1024 * 1024
# Of one answer: files that are looked into, characters of one file's diff and of all.
_MOST_FILES, _LONGEST_FILE, _LONGEST_DIFF = 300, 12_000, 40_000
_MOST_BLOBS = 16 * 1024 * 1024

_SETTINGS = (
    "core.fsmonitor=false", "core.untrackedCache=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null",
    "core.pager=cat", "core.sshCommand=false", "core.askPass=", "credential.helper=", "diff.external=",
    "protocol.allow=never", "safe.bareRepository=explicit",
)  # fmt: skip
_OPTIONS = ("--no-pager", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs")
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    # Objects that are missing may not be fetched: no transport is any of these.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
}
_ENTRY = re.compile(
    rb"(?P<mode>\d{6}) [0-9a-f]+ (?P<stage>\d)\t(?P<path>[^\0]+)\0"
    rb"  ctime: [\d:]+\n  mtime: (?P<sec>\d+):(?P<nsec>\d+)\n"
    rb"  dev: \d+\tino: \d+\n  uid: \d+\tgid: \d+\n  size: (?P<size>\d+)\tflags: (?P<flags>[0-9a-f]+)\n"
)
_SKIP_WORKTREE = 1 << 30
_FILES = (b"100644", b"100755")


_Blob = bytes | PathRefused | None
"""An object of git: None where there is none of the name, a refusal where it is too large."""


@dataclass(frozen=True, slots=True)
class Changes:
    """`diff`: unified, bounded, with paths as people and models write them. `files`: all that differ. `left_out`:
    those of them that the diff does not show, or not whole, each with the reason."""

    diff: str
    files: tuple[str, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Git:
    program: str
    folder: str

    async def run(self, *arguments: str, feed: bytes = b"") -> bytes:
        """Raises _Failed, and ToolFailed where there is more output than anybody could want."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        argv = [self.program, *_OPTIONS, *settings, *arguments]
        async with started(argv, self.folder, fed=True, environment=_ENVIRONMENT) as process:
            output, errors, _ = await asyncio.gather(
                _read(process.stdout, _MOST_OUTPUT), _read(process.stderr, _CHUNK), _write(process.stdin, feed)
            )
            if len(output) >= _MOST_OUTPUT:
                raise ToolFailed("The repository has more files than can be looked through.")
            if await process.wait() != 0:
                raise _Failed(errors.decode("utf-8", "replace"))
        return output


class _Failed(Exception):
    """What git has said on stderr."""


async def changes(view: WorkspaceView, place: Place | None = None, *, staged: bool = False) -> Changes:
    """How the workspace, or the file or folder `place`, differs from HEAD: unsaved text and new files included, or with
    `staged` only what is in the index. Raises ToolFailed with a sentence where git cannot tell."""
    if place is not None and place.root is None:
        raise ToolFailed(f"{shown_name(place.shown)} lies outside of the workspace folders, so git was not asked.")
    folders = [folder for folder in view.folders if place is None or folder.root is place.root]
    program = find_program("git", (folder.root.path for folder in view.folders))
    if program is None:
        raise ToolFailed("git is not installed, or was found only inside the workspace.")
    below = () if place is None or place.path is None else place.path.parts
    edits: list[_Change] = []
    problem = "No folder is open."
    for folder in folders:
        try:
            async with asyncio.timeout(_SECONDS):
                edits += await _of_folder(_Git(program, folder.root.path), view, folder, below, staged=staged)
                problem = ""
        except TimeoutError:
            raise ToolFailed(f"git took longer than {_SECONDS} seconds, so it was stopped.") from None
        except _Failed as failed:
            problem = problem and _sentence(folder, str(failed))
    if problem:
        raise ToolFailed(problem)
    return _shown(edits)


@dataclass(frozen=True, slots=True)
class _Change:
    """`edit` None: the file differs and `reason` says why it is not shown."""

    path: str
    edit: FileEdit | None
    reason: str = ""


async def _of_folder(
    git: _Git, view: WorkspaceView, folder: FolderView, below: tuple[str, ...], *, staged: bool
) -> list[_Change]:
    only = ("--", "/".join(below)) if below else ()
    names = await _differing(git, only)
    if not staged:
        index = await git.run("ls-files", "-s", "--debug", "-z", *only)
        others = await git.run("ls-files", "-o", "--exclude-standard", "-z", *only)
        names |= await asyncio.to_thread(_touched, folder.root, index)
        names |= {name for name in others.decode("utf-8", "surrogateescape").split("\0") if name}
        names |= await asyncio.to_thread(_unsaved, view, folder, below)
    wanted = sorted(name for name in names if not name.endswith("/") and "\n" not in name)
    heads = await _blobs(git, [f"HEAD:./{name}" for name in wanted[:_MOST_FILES]])
    indexed = await _blobs(git, [f":./{name}" for name in wanted[:_MOST_FILES]]) if staged else None
    return await asyncio.to_thread(_compared, view, folder, wanted, heads, indexed)


async def _differing(git: _Git, only: Sequence[str]) -> set[str]:
    """Names whose index entry is not that of HEAD; before the first commit these are all."""
    try:
        await git.run("rev-parse", "--verify", "-q", "HEAD^{commit}")
        how = ("diff-index", "--cached", "--name-only", "-z", "--relative", "--no-renames", "--no-ext-diff")
        found = await git.run(*how, "--no-textconv", "--ignore-submodules", "HEAD", *only)
    except _Failed as failed:
        if str(failed).strip():
            raise
        found = await git.run("ls-files", "-z", *only)
    return {name for name in found.decode("utf-8", "surrogateescape").split("\0") if name}


def _touched(root: Root, index: bytes) -> set[str]:
    """Names of tracked files whose size or time is not the one in the index."""
    found = set()
    for entry in _ENTRY.finditer(index):
        if entry["mode"] not in _FILES or int(entry["flags"], 16) & _SKIP_WORKTREE:
            continue
        name = entry["path"].decode("utf-8", "surrogateescape")
        try:
            now = root.stat(RelPath.of(tuple(name.split("/")), name))
        except PathRefused:
            now = None
        modified = int(entry["sec"]) * 10**9 + int(entry["nsec"])
        if entry["stage"] != b"0" or now is None or (now.size, now.modified_ns) != (int(entry["size"]), modified):
            found.add(name)
    return found


def _unsaved(view: WorkspaceView, folder: FolderView, below: tuple[str, ...]) -> set[str]:
    """Names of files that the editor holds another text of, perhaps."""
    ignore = IgnoreRules(folder.root)
    places = (place for place in view.unlike_disk() if place.root is folder.root)
    parts = (place.path.parts for place in places if place.path is not None)
    return {"/".join(one) for one in parts if one[: len(below)] == below and not ignore.ignored(one)}


async def _blobs(git: _Git, names: Sequence[str]) -> list[bytes | PathRefused | None]:
    """The objects of these names in order."""
    if not names:
        return []
    heads = (await git.run("cat-file", "--batch-check", feed=_lines(names))).split(b"\n")
    sizes = [int(head.rsplit(b" ", 1)[1]) if b" blob " in head else None for head in heads[: len(names)]]
    wanted, total = list[str](), 0
    for name, size in zip(names, sizes, strict=True):
        if size is not None and size <= EDIT_LIMIT and total + size <= _MOST_BLOBS:
            wanted.append(name)
            total += size
    found: dict[str, bytes] = {}
    output, at = await git.run("cat-file", "--batch", feed=_lines(wanted)) if wanted else b"", 0
    for name in wanted:
        end = output.index(b"\n", at)
        size = int(output[at:end].rsplit(b" ", 1)[1])
        found[name] = output[end + 1 : end + 1 + size]
        at = end + 2 + size
    too_large = PathRefused("is too large to be shown")
    return [None if size is None else found.get(name, too_large) for name, size in zip(names, sizes, strict=True)]


def _compared(
    view: WorkspaceView,
    folder: FolderView,
    names: Sequence[str],
    heads: Sequence[_Blob],
    indexed: Sequence[_Blob] | None,
) -> list[_Change]:
    found: list[_Change | None] = []
    for number, name in enumerate(names):
        if number >= len(heads):
            found.append(_Change(name, None, "was not looked into, as too many files differ"))
        else:
            found.append(_one(view, folder, name, heads[number], None if indexed is None else (indexed[number],)))
    return [change for change in found if change is not None]


def _one(
    view: WorkspaceView, folder: FolderView, name: str, head: _Blob, indexed: tuple[_Blob] | None
) -> _Change | None:
    """None where the two texts are one but for their form."""
    shown = name
    try:
        place = view.place_in(folder.root, parts := tuple(name.split("/")))
        shown = place.shown
        if (reason := folder.root.protected.reading_refused(parts)) is not None:
            return _Change(shown, None, reason)
        now = view.peek(place) if indexed is None else None
        before = _text(head)
        after = (None if now is None else now.text) if indexed is None else _text(indexed[0])
    except PathRefused as refused:
        return _Change(shown, None, str(refused).removeprefix(f"`{shown}` "))
    return None if same_but_for_form(before, after) else _Change(shown, FileEdit(place.uri, shown, before, after))


def _text(data: bytes | PathRefused | None) -> str | None:
    if isinstance(data, PathRefused):
        raise data
    try:
        return None if data is None else data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise PathRefused("is no text") from None


def _shown(found: Sequence[_Change]) -> Changes:
    parts: list[str] = []
    left_out: list[str] = []
    room = _LONGEST_DIFF
    for change in found:
        if change.edit is None:
            left_out.append(f"{shown_name(change.path)} {change.reason}".rstrip("."))
            continue
        whole = diff(EditSet((change.edit,)))
        most = min(_LONGEST_FILE, room)
        if len(whole) > most:
            left_out.append(f"{shown_name(change.path)} differs in more lines than are shown here")
            whole = whole[: whole.rfind("\n", 0, most) + 1]
        parts.append(whole)
        room -= len(whole)
    return Changes("".join(parts), tuple(change.path for change in found), tuple(left_out))


def _sentence(folder: FolderView, said: str) -> str:
    if "dubious ownership" in said:
        return f"git does not trust the folder {shown_name(folder.name)}, because it belongs to another user."
    if "not a git repository" in said or "safe.bareRepository" in said:
        return f"The folder {shown_name(folder.name)} is not in a git repository."
    return f"git could not read the repository of the folder {shown_name(folder.name)}."


def _lines(names: Iterable[str]) -> bytes:
    return b"".join(name.encode("utf-8", "surrogateescape") + b"\n" for name in names)


async def _read(stream: asyncio.StreamReader | None, most: int) -> bytes:
    found = bytearray()
    while stream is not None and len(found) < most and (chunk := await stream.read(_CHUNK)):
        found += chunk
    return bytes(found)


async def _write(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    if stream is not None:
        stream.write(data)
        try:
            await stream.drain()
            stream.close()
        except (BrokenPipeError, ConnectionResetError):
            return
