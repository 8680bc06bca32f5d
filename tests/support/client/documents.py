"""Documents as an editor holds them, by the LSP 3.17 text alone: positions, edits, files.

Strict on purpose: a position that lies outside the text or inside a character is the server's mistake and raises,
although the specification lets a client clamp. Shares no code with the product.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

Encoding = Literal["utf-8", "utf-16", "utf-32"]
Json = Any  # JSON values; the checks on them are made at run time, that is what this client is for.

_LINE_END = re.compile(r"\r\n|\n|\r")


class BadEdit(Exception):
    """The server sent an edit that no conforming server sends."""


class StaleEdit(Exception):
    """The edit was made for another version than the document has now; the client refuses it."""


def units(text: str, encoding: Encoding) -> int:
    """Length of `text` in units of the position encoding."""
    match encoding:
        case "utf-8":
            return len(text.encode())
        case "utf-16":
            return len(text.encode("utf-16-le")) // 2
        case "utf-32":
            return len(text)


@lru_cache(maxsize=4)
def split_lines(text: str) -> Sequence[tuple[int, int]]:
    """(start, end without line end) of every line, in code points. Only CRLF, LF and CR end a line."""
    lines, start = [], 0
    for end in _LINE_END.finditer(text):
        lines.append((start, end.start()))
        start = end.end()
    return (*lines, (start, len(text)))


def position_at(text: str, offset: int, encoding: Encoding = "utf-16") -> dict[str, int]:
    lines = split_lines(text)
    number = max(n for n, (start, _) in enumerate(lines) if start <= offset)
    start, end = lines[number]
    return {"line": number, "character": units(text[start : min(offset, end)], encoding)}


def offset_at(text: str, position: Mapping[str, int], encoding: Encoding = "utf-16") -> int:
    lines = split_lines(text)
    line, character = position["line"], position["character"]
    if not 0 <= line < len(lines):
        raise BadEdit(f"line {line} of a text of {len(lines)} lines")
    start, end = lines[line]
    used = 0
    for offset in range(start, end + 1):
        if used == character:
            return offset
        if used > character or offset == end:
            break
        used += units(text[offset], encoding)
    raise BadEdit(f"character {character} of line {line} is no place in {text[start:end]!r} ({encoding})")


def range_of(text: str, part: str, encoding: Encoding = "utf-16", *, nth: int = 0) -> dict[str, Any]:
    """The range of the nth occurrence of `part`."""
    start = -1
    for _ in range(nth + 1):
        start = text.index(part, start + 1)
    return {"start": position_at(text, start, encoding), "end": position_at(text, start + len(part), encoding)}


def apply_text_edits(text: str, edits: list[Json], encoding: Encoding = "utf-16") -> str:
    """All edits refer to `text`. Inserts at one place keep their order; overlaps raise BadEdit."""
    spans = []
    for number, edit in enumerate(edits):
        start = offset_at(text, edit["range"]["start"], encoding)
        end = offset_at(text, edit["range"]["end"], encoding)
        if end < start:
            raise BadEdit(f"a range that ends before it starts: {edit['range']}")
        spans.append((start, end, number, edit["newText"]))
    spans.sort(key=lambda span: (span[0], span[1] > span[0], span[2]))
    pieces, at = [], 0
    for start, end, _, new in spans:
        if start < at:
            raise BadEdit("two edits of one document overlap")
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


def path_of(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.scheme != "file":
        raise BadEdit(f"a file operation on {uri!r}")
    return Path(unquote(parts.path))


@dataclass
class Document:
    uri: str
    text: str
    version: int
    language: str = "python"
    past_versions: set[int] = field(default_factory=set)


OnChange = Callable[[Document, list[Json]], None]


@dataclass
class Desk:
    """What the editor has open, and the disk below it.

    `apply` is transactional: it either carries out the whole workspace edit or raises and changes nothing. Open
    documents are changed through `on_change`, the rest on disk.
    """

    encoding: Encoding = "utf-16"
    open: dict[str, Document] = field(default_factory=dict)

    def text_of(self, uri: str) -> str | None:
        if uri in self.open:
            return self.open[uri].text
        path = path_of(uri)
        return path.read_bytes().decode() if path.is_file() else None

    def apply(self, edit: Json, on_change: OnChange) -> None:
        plan = _Plan(self)
        if "documentChanges" in edit:
            for number, change in enumerate(edit["documentChanges"]):
                plan.take(change, number)
        else:
            for uri, edits in edit.get("changes", {}).items():
                plan.edit(uri, edits)
        plan.check_annotations(edit)
        plan.carry_out(on_change)


class _Plan:
    """The texts after the edit, before anything is changed. None = the file is gone."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._texts: dict[str, str | None] = {}
        self._edits: dict[str, list[Json]] = {}
        self._annotations: set[str] = set()

    def take(self, change: Json, number: int) -> None:
        if "annotationId" in change:
            self._annotations.add(change["annotationId"])
        match change.get("kind"):
            case None:
                self._edit_versioned(change)
            case "create":
                self._create(change)
            case "rename":
                self._rename(change)
            case "delete":
                self._put(change["uri"], None, must_exist=True)
            case other:
                raise BadEdit(f"documentChanges[{number}] has the unknown kind {other!r}")

    def _edit_versioned(self, change: Json) -> None:
        target = change["textDocument"]
        uri = target["uri"]
        if "version" not in target:
            raise BadEdit(f"a versioned edit of {uri} without a version; null is the word for a file not open")
        version, document = target["version"], self._desk.open.get(uri)
        if document is None and version is not None:
            raise BadEdit(f"version {version!r} for {uri}, which is not open")
        if document is not None and version != document.version:
            if version not in document.past_versions:
                raise BadEdit(f"version {version!r} for {uri}, which never had it")
            raise StaleEdit(f"{uri} is at version {document.version}, the edit was made for {version}")
        self.edit(uri, change["edits"])

    def edit(self, uri: str, edits: list[Json]) -> None:
        self._annotations |= {edit["annotationId"] for edit in edits if "annotationId" in edit}
        if uri in self._edits:
            raise BadEdit(f"{uri} is edited twice in one workspace edit")
        text = self._text(uri)
        if text is None:
            raise BadEdit(f"an edit of {uri}, which does not exist")
        self._edits[uri] = edits
        self._texts[uri] = apply_text_edits(text, edits, self._desk.encoding)

    def _create(self, change: Json) -> None:
        options = change.get("options") or {}
        if self._text(change["uri"]) is None or options.get("overwrite"):
            self._texts[change["uri"]] = ""
        elif not options.get("ignoreIfExists"):
            raise StaleEdit(f"{change['uri']} exists already")

    def _rename(self, change: Json) -> None:
        text = self._text(change["oldUri"])
        self._put(change["oldUri"], None, must_exist=True)
        if self._text(change["newUri"]) is not None and not (change.get("options") or {}).get("overwrite"):
            raise StaleEdit(f"{change['newUri']} exists already")
        self._texts[change["newUri"]] = text

    def _put(self, uri: str, text: str | None, *, must_exist: bool) -> None:
        if must_exist and self._text(uri) is None:
            raise BadEdit(f"{uri} does not exist")
        self._texts[uri] = text

    def _text(self, uri: str) -> str | None:
        return self._texts[uri] if uri in self._texts else self._desk.text_of(uri)

    def check_annotations(self, edit: Json) -> None:
        unknown = self._annotations - set(edit.get("changeAnnotations") or {})
        if unknown:
            raise BadEdit(f"annotations that the edit does not declare: {sorted(unknown)}")

    def carry_out(self, on_change: OnChange) -> None:
        for uri, text in self._texts.items():
            document = self._desk.open.get(uri)
            if document is not None and text is not None and uri in self._edits:
                on_change(document, self._edits[uri])
            elif text is None:
                self._desk.open.pop(uri, None)
                path_of(uri).unlink(missing_ok=True)
            else:
                path = path_of(uri)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
