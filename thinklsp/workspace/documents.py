"""The workspace folder that contains a path, the places of files, and the file that each open document shows.

A file may be open under several names, through links. A document may also show a file in another way: a cell is a part
of a notebook, and a document of a version control system or a diff is another version of a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import FileStat, Root, resolve_real_path
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import RelPath, extract_path_parts, normalize_uri, path_to_uri, uri_to_path

Source = Literal["document", "disk", "turn"]


class Place(NamedTuple):
    """A file or document that a path or URI refers to. Two places with equal keys are the same file.

    `label` is the readable name. `inside` is the path below `root`, and is empty for the root itself. Both are None for
    documents outside all folders. A listing creates many places, so they are lightweight tuples.
    """

    key: str
    label: str
    uri: str
    root: Root | None = None
    inside: str | None = None

    @property
    def path(self) -> RelPath | None:
        if self.inside is None:
            return None
        return RelPath(tuple(self.inside.split("/")) if self.inside else (), self.label)

    def stat(self) -> FileStat | None:
        """Return the status on disk, or None if the place is not on disk. Raises PathRefused."""
        return None if self.root is None or self.path is None else self.root.stat(self.path)

    def load_bytes(self) -> bytes | None:
        """Return the bytes on disk, or None if the place is not on disk. Raises PathRefused."""
        return None if self.root is None or self.path is None else self.root.read(self.path)


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file. `version` is set only for open documents.

    `has_bom` is true if the file on disk starts with a byte order mark, which is not part of `text`. The text of a
    document is unchanged, so that offsets agree with the editor.
    """

    text: str
    source: Source
    version: int | None = None
    has_bom: bool = False


@dataclass(frozen=True, slots=True)
class FolderView:
    """A workspace folder with a unique name. If there are several folders, all paths begin with their folder's name."""

    root: Root
    name: str


def name_folders(roots: Iterable[Root]) -> tuple[FolderView, ...]:
    """Give each folder a unique name, such as `src-2`. The name contains no slash, because paths begin with it."""
    views: list[FolderView] = []
    for root in roots:
        plain = (root.name or os.path.basename(root.given_path)).replace("/", "-").strip() or "folder"
        name, count = plain, 1
        while any(view.name == name for view in views):
            count += 1
            name = f"{plain}-{count}"
        views.append(FolderView(root, name))
    return tuple(views)


RootPath = tuple[Root, tuple[str, ...]]
"""A root, and the components of a path below it."""


class RootResolver:
    """A resolver that finds the workspace folder for a path.

    An editor may open a file in a workspace folder through a link. The resolver recognizes that both paths lead to the
    same file.

    Links are followed only for the documents and edits that `follow` is given, and only at that moment.
    """

    def __init__(self, roots: Sequence[Root]) -> None:
        # The components of each folder's path, with and without links.
        self._bases = [(root, parts) for root in roots for parts in {_split(root.path), _split(root.given_path)}]
        # The real paths of the files that have a second path through a link, and of the folders of all documents.
        self._through_links: dict[str, RootPath] = {}
        self._real_folders: dict[str, str] = {}

    def follow(self, uri: str) -> tuple[str, bool]:
        """Return the key of a URI, and True if it leads through a link. `resolve_path` then follows the link, too."""
        try:
            path = uri_to_path(uri)
        except (PathRefused, UnicodeError):
            return normalize_uri(uri), False
        given = self.find_root(path)
        try:
            target = self.find_root(self._resolve_links(path))
        except (OSError, UnicodeError):
            target = None
        if target is None or target == given:
            return path_to_uri(_build_path(given, path)), False
        self._through_links[_build_path(given, path)] = target
        return build_key(*target), True

    def _resolve_links(self, path: str) -> str:
        """Return the real path of a file. The folders are resolved once, because many documents share them."""
        above, _, name = path.rpartition("/")
        folder = self._real_folders.get(above)
        if folder is None:
            folder = self._real_folders[above] = resolve_real_path(above or "/")
        whole = f"{folder.rstrip('/')}/{name}"
        return resolve_real_path(whole) if os.path.islink(whole) else whole

    def find_given(self, uri: str) -> RootPath | None:
        """Return the folder and the path that a URI names, without following links."""
        try:
            return self.find_root(uri_to_path(uri))
        except (PathRefused, UnicodeError):
            return None

    def is_file_link(self, uri: str) -> bool:
        """Return True if a URI that was given to `follow` names a link, and not a file in a folder behind a link."""
        target = self.resolve_uri(uri)
        if target is None or self.find_given(uri) == target:
            return False
        above, _, name = uri_to_path(uri).rpartition("/")
        return os.path.join(self._real_folders[above], name) != os.path.join(target[0].path, *target[1])

    def resolve_uri(self, uri: str) -> RootPath | None:
        try:
            return self.resolve_path(uri_to_path(uri))
        except (PathRefused, UnicodeError):
            return None

    def resolve_path(self, path: str) -> RootPath | None:
        """Return the innermost workspace folder that contains an absolute path, or None.

        The result contains the relative path in the folder.
        """
        given = self.find_root(path)
        return self._through_links.get(_build_path(given, path), given) if self._through_links else given

    def find_root(self, path: str) -> RootPath | None:
        """Return the innermost workspace folder of a path, as `resolve_path` does, without following any link."""
        parts = _split(path)
        best: RootPath | None = None
        if ".." in parts:
            return None
        for root, above in self._bases:
            rest = parts[len(above) :]
            if parts[: len(above)] == above and (best is None or len(rest) < len(best[1])):
                best = (root, rest)
        return best

    def compute_key(self, uri: str) -> str:
        """Return a key that is the same for all spellings of a URI, including paths through links."""
        root_path = self.resolve_uri(uri)
        return normalize_uri(uri) if root_path is None else build_key(*root_path)


def _split(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def _build_path(root_path: RootPath | None, path: str) -> str:
    """Return an absolute path in the spelling that all paths to the same folder share."""
    return path if root_path is None else os.path.join(root_path[0].path, *root_path[1])


def build_key(root: Root, parts: tuple[str, ...]) -> str:
    return path_to_uri(os.path.join(root.path, *parts))


def open_extra_roots(
    paths: Iterable[str], workspace: Iterable[Root], protected: ProtectedPaths, *, allow_wide: bool = False
) -> tuple[list[Root], list[str]]:
    """Open the folders that tools may only read, and return them with an error message for each unusable folder.

    Folders inside a workspace folder are skipped.
    """
    inside = [root.path for root in workspace]
    roots: list[Root] = []
    problems: list[str] = []
    for path in dict.fromkeys(resolve_real_path(os.path.expanduser(path)) for path in paths):
        if any(os.path.commonpath((path, outer)) == outer for outer in inside):
            continue
        try:
            roots.append(Root(path, protected=protected, allow_wide=allow_wide, read_only=True))
        except PathRefused as refused:
            problems.append(f"`extra_roots`: {refused}")
    return roots, problems


# A URI with a path that is not simply the URI of a file: the scheme, the path, and the fragment of a cell.
_FOREIGN = re.compile(
    r"(?!untitled:|file:[^?#]*$)([A-Za-z][A-Za-z0-9+.-]*):(?://[^/?#]*)?(/[^?#]*)(?:\?[^#]*)?(#.*)?", re.DOTALL
)
_SCHEME_WORD = re.compile(r"[+.-]")
# The words of schemes with which editors show other versions of files.
_VERSION_WORDS = frozenset((
    "chat", "conflict", "diff", "diffview", "fugitive", "history", "hg", "jj", "merge", "p4", "pr", "review",
    "revision", "scm", "snapshot", "svn",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class DocumentSnapshot:
    """An open document at `version`. `uri` is spelled as in the editor."""

    uri: str
    version: int
    text: str
    language_id: str = ""


def find_notebook(uri: str) -> str | None:
    """Return the URI of the notebook file if a document is a cell of a notebook, or None."""
    match = _FOREIGN.fullmatch(uri)
    if match is None or _is_version_scheme(match[1]):
        return None
    words, path, fragment = set(_SCHEME_WORD.split(match[1].lower())), match[2], match[3]
    if words & {"output", "metadata"}:
        return None
    is_cell = words & {"notebook", "cell"} or (fragment and path.lower().endswith(".ipynb"))
    return f"file://{path}" if is_cell else None


def format_notebook(cells: Iterable[tuple[str, str]]) -> str:
    """Return the text of a notebook from the URIs and texts of its cells."""
    return "".join(f"[cell {uri}]\n{text}" + ("" if text.endswith("\n") else "\n") for uri, text in cells)


def is_version(uri: str) -> bool:
    """Return True if the scheme of a URI says that the document is another version of a file, such as `git:`."""
    return _is_version_scheme(uri.partition(":")[0])


def _is_version_scheme(scheme: str) -> bool:
    words = _SCHEME_WORD.split(scheme.lower())
    return any(word in _VERSION_WORDS or word.startswith(("git", "conflict")) for word in words)


def list_name_parts(uri: str) -> Iterator[tuple[str, ...]]:
    """Yield the path components of a URI, with and without its query and fragment, for checks of file names."""
    yield extract_path_parts(uri)
    if (match := _FOREIGN.fullmatch(uri)) is not None:
        yield extract_path_parts(f"file://{match[2]}")


class OpenDocuments:
    """The open documents of a turn. `by_key` has one document for each file, and `uris` its URI."""

    def __init__(self, resolver: RootResolver, documents: Iterable[DocumentSnapshot]) -> None:
        self._resolver = resolver
        # All documents of each file. One that is open under the file's own path comes last, and is preferred.
        self._copies: dict[str, list[DocumentSnapshot]] = {}
        # The keys of the cells of each notebook, by the key of the notebook's file.
        self._cells: dict[str, list[str]] = {}
        followed = ((document, *resolver.follow(document.uri)) for document in documents)
        for document, key, _ in sorted(followed, key=lambda entry: not entry[2]):
            self._copies.setdefault(key, []).append(document)
            if (notebook := find_notebook(document.uri)) is not None:
                self._cells.setdefault(resolver.follow(notebook)[0], []).append(key)
        self.by_key = {key: copies[-1] for key, copies in self._copies.items()}
        self.uris = {key: document.uri for key, document in self.by_key.items()}

    def add(self, document: DocumentSnapshot) -> None:
        """Add a document of a file that is not open yet."""
        key = self._resolver.compute_key(document.uri)
        self.uris.setdefault(key, document.uri)
        self._copies[key] = [document]
        self.by_key = self.by_key | {key: document}  # A tool in a thread may be listing the old ones.

    @property
    def notebooks(self) -> tuple[str, ...]:
        """The keys of the files that are open as notebooks."""
        return tuple(self._cells)

    def list_cells(self, key: str) -> tuple[str, ...]:
        """Return the keys of the cells of a notebook, in the order in which they were opened."""
        return tuple(self._cells.get(key, ()))

    def list_linked_paths(self, key: str) -> Iterator[RootPath]:
        """Yield the paths under which a file is open through links."""
        own = self._resolver.resolve_uri(key)
        for document in self._copies.get(key, ()):
            given = self._resolver.find_given(document.uri)
            if given is not None and given != own:
                yield given

    def list_different_copies(self, key: str) -> tuple[DocumentSnapshot, ...]:
        """Return the documents of a file that is open with different texts, the preferred one first."""
        copies = self._copies.get(key, ())
        return tuple(reversed(copies)) if len({document.text for document in copies}) > 1 else ()

    def shows_other_version(self, key: str) -> bool:
        """Return True if a document outside all folders shows a file in another way, and is not a cell."""
        uri = self.uris.get(key, key)
        match = _FOREIGN.fullmatch(uri)
        names_file = match is not None and self._resolver.find_given(f"file://{match[2]}") is not None
        return is_version(uri) or (names_file and find_notebook(uri) is None)
