"""Detection of files that differ from HEAD, with git commands that cannot run programs from the repository.

If git read the files in the work tree, it could run filters and other programs configured in the repository. Therefore,
thinklsp uses git only to read the index and stored objects. It compares file sizes and modification times, reads
changed files through the workspace view, and computes the diff itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thinklsp.core.edits import EditSet, FileEdit, format_diff
from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.text_safety import format_path
from thinklsp.sandbox.process import find_program, run_child
from thinklsp.workspace.ignore import IgnoreRules
from thinklsp.workspace.merge import is_equal_ignoring_format
from thinklsp.workspace.paths import MAX_EDIT_BYTES, Root
from thinklsp.workspace.uri import RelPath
from thinklsp.workspace.view import FolderView, Place, WorkspaceView

_TIMEOUT_SECONDS = 10
_CHUNK_BYTES = 1 << 16
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024
# The limits for the number of files, the characters per file, and the characters in the entire diff.
_MAX_FILES, _MAX_FILE_DIFF, _MAX_DIFF = 300, 12_000, 40_000
_MAX_BLOB_BYTES = 16 * 1024 * 1024

_SETTINGS = (
    "core.fsmonitor=false", "core.untrackedCache=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null",
    "core.pager=cat", "core.sshCommand=false", "core.askPass=", "credential.helper=", "diff.external=",
    "protocol.allow=never", "safe.bareRepository=explicit",
)  # fmt: skip
_OPTIONS = ("--no-pager", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs")
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    # Prevent git from fetching missing objects. No transport is named `none`.
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
"""The content of a git object; None if the object does not exist, a refusal if the object is too large."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes since HEAD.

    `diff` is a unified diff of limited size. `files` contains all files that differ from HEAD. `omissions` contains
    notes about files that are missing from the diff or shortened in it.
    """

    diff: str
    files: tuple[str, ...]
    omissions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Git:
    program: str
    folder: str

    async def run(self, *arguments: str, feed: bytes = b"") -> bytes:
        """Run git and return its output. Raises _GitError, or ToolFailed if the output is too large."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        argv = [self.program, *_OPTIONS, *settings, *arguments]
        async with run_child(argv, self.folder, has_stdin=True, environment=_ENVIRONMENT) as process:
            output, errors, _ = await asyncio.gather(
                _read(process.stdout, _MAX_OUTPUT_BYTES),
                _read(process.stderr, _CHUNK_BYTES),
                _write(process.stdin, feed),
            )
            if len(output) >= _MAX_OUTPUT_BYTES:
                raise ToolFailed("The repository has too many files to check.")
            if await process.wait() != 0:
                raise _GitError(errors.decode("utf-8", "replace"))
        return output


class _GitError(Exception):
    """Raised with the error message that git printed."""


async def find_changes(view: WorkspaceView, place: Place | None = None, *, staged: bool = False) -> Changes:
    """Return the changes since HEAD in the workspace, or only those in the file or folder `place`.

    The changes include unsaved text and new files. If `staged` is true, only staged changes are returned. Raises
    ToolFailed with a message for the model if git fails.
    """
    if place is not None and place.root is None:
        raise ToolFailed(f"{format_path(place.label)} is outside the workspace folders, so git was not run.")
    folders = [folder for folder in view.folders if place is None or folder.root is place.root]
    program = find_program("git", (folder.root.path for folder in view.folders))
    if program is None:
        raise ToolFailed("git is not installed, or was found only inside the workspace.")
    below = () if place is None or place.path is None else place.path.parts
    edits: list[_Change] = []
    problem = "No folder is open."
    for folder in folders:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                edits += await _find_folder_changes(_Git(program, folder.root.path), view, folder, below, staged=staged)
                problem = ""
        except TimeoutError:
            raise ToolFailed(f"git took longer than {_TIMEOUT_SECONDS} seconds, so it was stopped.") from None
        except _GitError as failed:
            problem = problem and _explain_error(folder, str(failed))
    if problem:
        raise ToolFailed(problem)
    return _build_changes(edits)


@dataclass(frozen=True, slots=True)
class _Change:
    """The change to one file. `edit` is None if the change cannot be shown, and `reason` then explains why."""

    path: str
    edit: FileEdit | None
    reason: str = ""


async def _find_folder_changes(
    git: _Git, view: WorkspaceView, folder: FolderView, below: tuple[str, ...], *, staged: bool
) -> list[_Change]:
    only = ("--", "/".join(below)) if below else ()
    names = await _find_index_changes(git, only)
    if not staged:
        index = await git.run("ls-files", "-s", "--debug", "-z", *only)
        others = await git.run("ls-files", "-o", "--exclude-standard", "-z", *only)
        names |= await asyncio.to_thread(_find_modified, folder.root, index)
        names |= _split(others)
        names |= await asyncio.to_thread(_find_unsaved, view, folder, below)
    paths = sorted(name for name in names if not name.endswith("/") and "\n" not in name)
    heads = await _read_blobs(git, [f"HEAD:./{name}" for name in paths[:_MAX_FILES]])
    indexed = await _read_blobs(git, [f":./{name}" for name in paths[:_MAX_FILES]]) if staged else None
    return await asyncio.to_thread(_compare_all, view, folder, paths, heads, indexed)


async def _find_index_changes(git: _Git, only: Sequence[str]) -> set[str]:
    """Return the paths whose index entry differs from HEAD. Before the first commit, return all paths in the index."""
    try:
        await git.run("rev-parse", "--verify", "-q", "HEAD^{commit}")
        how = ("diff-index", "--cached", "--name-only", "-z", "--relative", "--no-renames", "--no-ext-diff")
        output = await git.run(*how, "--no-textconv", "--ignore-submodules", "HEAD", *only)
    except _GitError as failed:
        if str(failed).strip():
            raise
        output = await git.run("ls-files", "-z", *only)
    return _split(output)


def _split(names: bytes) -> set[str]:
    return {name for name in names.decode("utf-8", "surrogateescape").split("\0") if name}


def _find_modified(root: Root, index: bytes) -> set[str]:
    """Return the paths of tracked files whose size or modification time differs from the index."""
    modified_names = set()
    for entry in _ENTRY.finditer(index):
        if entry["mode"] not in _FILES or int(entry["flags"], 16) & _SKIP_WORKTREE:
            continue
        name = entry["path"].decode("utf-8", "surrogateescape")
        try:
            now = root.stat(RelPath.build(tuple(name.split("/")), name))
        except PathRefused:
            now = None
        modified_ns = int(entry["sec"]) * 10**9 + int(entry["nsec"])
        if entry["stage"] != b"0" or now is None or (now.size, now.modified_ns) != (int(entry["size"]), modified_ns):
            modified_names.add(name)
    return modified_names


def _find_unsaved(view: WorkspaceView, folder: FolderView, below: tuple[str, ...]) -> set[str]:
    """Return the paths of open documents, because the editor's text may differ from the file on disk."""
    ignore = IgnoreRules(folder.root)
    places = (place for place in view.list_open_places() if place.root is folder.root)
    parts = (place.path.parts for place in places if place.path is not None)
    return {"/".join(path) for path in parts if path[: len(below)] == below and not ignore.is_ignored(path)}


async def _read_blobs(git: _Git, names: Sequence[str]) -> list[bytes | PathRefused | None]:
    """Read the git objects with the given names, in order."""
    if not names:
        return []
    heads = (await git.run("cat-file", "--batch-check", feed=_join_names(names))).split(b"\n")
    sizes = [int(head.rsplit(b" ", 1)[1]) if b" blob " in head else None for head in heads[: len(names)]]
    readable, total = list[str](), 0
    for name, size in zip(names, sizes, strict=True):
        if size is not None and size <= MAX_EDIT_BYTES and total + size <= _MAX_BLOB_BYTES:
            readable.append(name)
            total += size
    blobs: dict[str, bytes] = {}
    output, at = await git.run("cat-file", "--batch", feed=_join_names(readable)) if readable else b"", 0
    for name in readable:
        end = output.index(b"\n", at)
        size = int(output[at:end].rsplit(b" ", 1)[1])
        blobs[name] = output[end + 1 : end + 1 + size]
        at = end + 2 + size
    too_large = PathRefused("is too large to be shown")
    return [None if size is None else blobs.get(name, too_large) for name, size in zip(names, sizes, strict=True)]


def _compare_all(
    view: WorkspaceView,
    folder: FolderView,
    names: Sequence[str],
    heads: Sequence[_Blob],
    indexed: Sequence[_Blob] | None,
) -> list[_Change]:
    """Return the change to each file. The last files are not compared if there are more files than texts of HEAD."""
    compared = (
        _compare_file(view, folder, name, heads[number], None if indexed is None else (indexed[number],))
        for number, name in enumerate(names[: len(heads)])
    )
    others = (_Change(name, None, "was not compared, because too many files differ") for name in names[len(heads) :])
    return [change for change in (*compared, *others) if change is not None]


def _compare_file(
    view: WorkspaceView, folder: FolderView, name: str, head: _Blob, indexed: tuple[_Blob] | None
) -> _Change | None:
    """Return the change to one file, or None if only its byte order mark or line endings differ."""
    label = name
    try:
        place = view.build_place(folder.root, parts := tuple(name.split("/")))
        label = place.label
        if (reason := folder.root.protected.explain_read_refusal(parts)) is not None:
            return _Change(label, None, reason)
        if view.list_cells(place):
            return _Change(label, None, "was not compared, because it is open as a notebook")
        now = view.peek(place) if indexed is None else None
        before = _decode(head)
        after = (None if now is None else now.text) if indexed is None else _decode(indexed[0])
    except PathRefused as refused:
        return _Change(label, None, str(refused).removeprefix(f"`{label}` "))
    return (
        None if is_equal_ignoring_format(before, after) else _Change(label, FileEdit(place.uri, label, before, after))
    )


def _decode(data: bytes | PathRefused | None) -> str | None:
    if isinstance(data, PathRefused):
        raise data
    try:
        return None if data is None else data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise PathRefused("is not text") from None


def _build_changes(changes: Sequence[_Change]) -> Changes:
    parts: list[str] = []
    left_out: list[str] = []
    room = _MAX_DIFF
    for change in changes:
        if change.edit is None:
            left_out.append(f"{format_path(change.path)} {change.reason}".rstrip("."))
            continue
        whole = format_diff(EditSet((change.edit,)))
        most = min(_MAX_FILE_DIFF, room)
        if len(whole) > most:
            left_out.append(f"{format_path(change.path)} has more changes than are shown here")
            whole = whole[: whole.rfind("\n", 0, most) + 1]
        parts.append(whole)
        room -= len(whole)
    return Changes("".join(parts), tuple(change.path for change in changes), tuple(left_out))


def _explain_error(folder: FolderView, errors: str) -> str:
    if "dubious ownership" in errors:
        return f"git does not trust the folder {format_path(folder.name)}, because it belongs to another user."
    if "not a git repository" in errors or "safe.bareRepository" in errors:
        return f"The folder {format_path(folder.name)} is not in a git repository."
    return f"git could not read the repository of the folder {format_path(folder.name)}."


def _join_names(names: Iterable[str]) -> bytes:
    return b"".join(name.encode("utf-8", "surrogateescape") + b"\n" for name in names)


async def _read(stream: asyncio.StreamReader | None, limit: int) -> bytes:
    data = bytearray()
    while stream is not None and len(data) < limit and (chunk := await stream.read(_CHUNK_BYTES)):
        data += chunk
    return bytes(data)


async def _write(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    if stream is not None:
        stream.write(data)
        try:
            await stream.drain()
            stream.close()
        except (BrokenPipeError, ConnectionResetError):
            return
