"""The open documents of a turn, by the file that each one shows.

A file may be open under several names, through links. A document may also show a file in another way: a cell is a part
of a notebook, and a document of a version control system or a diff is another version of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thinklsp.workspace.roots import RootPath, RootResolver
from thinklsp.workspace.uri import extract_path_parts

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
