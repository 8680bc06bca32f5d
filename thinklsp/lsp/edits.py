"""A turn's edit set as one workspace edit: merged onto what the user has now, versioned, minimal, reviewable.

Pure: present texts and client abilities in, plain JSON and an outcome for every file out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from thinklsp.core.edits import FileEdit, TextEdit, hunks
from thinklsp.lsp.client import Abilities
from thinklsp.lsp.convert import Encoding, Lines
from thinklsp.workspace.forms import merge_onto, same_but_for_form
from thinklsp.workspace.merge import Conflict, Merged

Status = Literal["applied", "conflict", "refused", "held", "unknown"]
Review = Literal["auto", "always", "never"]

_REQUESTED = "thinklsp"
_ELSEWHERE = "thinklsp-elsewhere"

# Written out: told to ignore a file that exists, Neovim makes no folder for a new one, which then cannot be saved;
# and lsp-mode of Emacs fails where there are no options at all.
CREATE_OPTIONS: Mapping[str, bool] = {"overwrite": False, "ignoreIfExists": False}


@dataclass(frozen=True, slots=True)
class FileStatus:
    uri: str
    status: Status
    reason: str | None = None

    def json(self) -> dict[str, Any]:
        return {"uri": self.uri, "status": self.status, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Present:
    """A file as it is now. `text` None: it does not exist. `version` None: it is not open."""

    text: str | None
    version: int | None = None
    desynced: bool = False
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """What the user asked to be changed. Hunks outside need a look. None: the request named no place.

    `lines` are zero-based, both ends included.
    """

    uri: str
    lines: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """One file's part of the edit that is ready to be sent, and the text that the file will then have."""

    file: FileEdit
    present: Present
    after: str | None


@dataclass(frozen=True, slots=True)
class Draft:
    """`ready` goes out as one workspace edit; `left_out` says why the others do not."""

    ready: tuple[Proposal, ...]
    left_out: tuple[FileStatus, ...]


@dataclass(slots=True)
class _Sink:
    """Collects the parts of one WorkspaceEdit."""

    can: Abilities
    encoding: Encoding
    review: Review
    scope: Scope | None
    changes: list[dict[str, Any]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)


def draft(
    files: Sequence[FileEdit], present: Mapping[str, Present], can: Abilities, *, told: Mapping[str, str] | None = None
) -> Draft:
    """What of the edit set can be sent now. `present` holds every file by its URI, new names of renames included.

    `told`: texts in which the user was told of a conflict, by URI, and asks for the proposal all the same. The turn's
    text wins over what stood there then; what was typed since is merged as ever.
    """
    ready: list[Proposal] = []
    left_out: list[FileStatus] = []
    for file in files:
        target = None if file.new_uri is None else present[file.new_uri]
        made = _ready(file, present[file.uri], target, can, told=(told or {}).get(file.uri))
        if isinstance(made, Proposal):
            ready.append(made)
        else:
            left_out.append(made)
    return Draft(tuple(ready), tuple(left_out))


def _ready(
    file: FileEdit, now: Present, target: Present | None, can: Abilities, *, told: str | None
) -> Proposal | FileStatus:
    if _is_done(file, now, target):
        return FileStatus(file.uri, "applied")
    if now.refusal is not None:
        return FileStatus(file.uri, "refused", now.refusal)
    if target is not None and (target.refusal is not None or target.text is not None):
        reason = target.refusal or "a file of the new name has been made meanwhile"
        return FileStatus(file.uri, "conflict" if target.refusal is None else "refused", reason)
    if now.desynced:
        reason = "the editor's changes of this document did not arrive in order; close and open it again"
        return FileStatus(file.uri, "refused", reason)
    if (missing := _missing_ability(file, can)) is not None:
        return FileStatus(file.uri, "refused", f"the editor cannot {missing} files on a server's request")
    if file.before is None:
        if now.text is None or now.text == told:
            return Proposal(file, now, file.after)
        if same_but_for_form(now.text, file.after):
            return FileStatus(file.uri, "applied")
        return FileStatus(file.uri, "conflict", "a file of this name has been made meanwhile")
    if now.text is None:
        return FileStatus(file.uri, "conflict", "the file was deleted meanwhile")
    if file.after is None:
        if same_but_for_form(now.text, file.before) or now.text == told:
            return Proposal(file, now, None)
        return FileStatus(file.uri, "conflict", "the file was changed meanwhile, so it was not deleted")
    merged = _merged(file.before, file.after, now.text, told)
    if isinstance(merged, Conflict):
        first, last = merged.regions[0]
        where = f"line {first}" if last <= first else f"lines {first}-{last}"
        return FileStatus(file.uri, "conflict", f"you changed the same place meanwhile ({where}); your text stays")
    if merged.text == now.text and target is None:
        return FileStatus(file.uri, "applied")
    return Proposal(file, now, merged.text)


def _merged(before: str, after: str, now: str, told: str | None) -> Merged | Conflict:
    merged = merge_onto(now, before, after)
    if told is None or isinstance(merged, Merged):
        return merged
    winning = merge_onto(told, before, after, wins=True)
    return merge_onto(now, told, winning.text) if isinstance(winning, Merged) else winning


def _is_done(file: FileEdit, now: Present, target: Present | None) -> bool:
    """The user, or an action that carried the edit, has brought the file there already."""
    if target is not None:
        return now.text is None and target.text == file.after
    return now.refusal is None and now.text == file.after


def _missing_ability(file: FileEdit, can: Abilities) -> str | None:
    wanted = {"create": file.creates, "delete": file.deletes, "rename": file.new_uri is not None}
    possible = can.resource_operations if can.document_changes else frozenset()
    return next((name for name, needed in wanted.items() if needed and name not in possible), None)


def workspace_edit(
    ready: Sequence[Proposal],
    can: Abilities,
    *,
    encoding: Encoding,
    title: str,
    review: Review = "auto",
    scope: Scope | None = None,
) -> dict[str, Any]:
    """The WorkspaceEdit of all proposals, in order."""
    sink = _Sink(can, encoding, review, scope)
    if not can.document_changes:
        return {"changes": {item.file.uri: _edits(item, encoding) for item in ready}}
    for item in ready:
        sink.changes.extend(_document_changes(item, sink))
    edit: dict[str, Any] = {"documentChanges": sink.changes}
    if sink.used:
        edit["changeAnnotations"] = {name: _annotation(name, title) for name in sorted(sink.used)}
    return edit


def _document_changes(item: Proposal, sink: _Sink) -> Iterator[dict[str, Any]]:
    file = item.file
    if file.deletes:
        yield {"kind": "delete", "uri": file.uri, "options": {"ignoreIfNotExists": True}, **_looked_at(file, sink)}
        return
    if item.present.text is None:
        yield {"kind": "create", "uri": file.uri, "options": dict(CREATE_OPTIONS), **_looked_at(file, sink)}
    edits = [_annotated(edit, file.uri, sink) for edit in _edits(item, sink.encoding)]
    if edits:
        yield {"textDocument": {"uri": file.uri, "version": item.present.version}, "edits": edits}
    if file.new_uri is not None:
        yield {"kind": "rename", "oldUri": file.uri, "newUri": file.new_uri, **_looked_at(file, sink)}


def _looked_at(file: FileEdit, sink: _Sink) -> dict[str, str]:
    """The annotation of an operation on a whole file."""
    return _annotate(sink, _confirms(sink, file.uri, None, structural=file.deletes or file.new_uri is not None))


def _edits(item: Proposal, encoding: Encoding) -> list[dict[str, Any]]:
    before, after = item.present.text or "", item.after or ""
    lines = Lines(before, encoding)
    return [_text_edit(edit, lines) for edit in hunks(before, after)]


def _text_edit(edit: TextEdit, lines: Lines) -> dict[str, Any]:
    return {"range": lines.range(edit.start, edit.end), "newText": edit.new_text}


def _annotated(edit: dict[str, Any], uri: str, sink: _Sink) -> dict[str, Any]:
    lines = (edit["range"]["start"]["line"], edit["range"]["end"]["line"])
    return {**edit, **_annotate(sink, _confirms(sink, uri, lines, structural=False))}


def _annotate(sink: _Sink, name: str) -> dict[str, str]:
    if not sink.can.change_annotations or sink.review == "never":
        return {}
    sink.used.add(name)
    return {"annotationId": name}


def _confirms(sink: _Sink, uri: str, lines: tuple[int, int] | None, *, structural: bool) -> str:
    """The annotation of a change: `thinklsp-elsewhere` where the user should look before it happens."""
    if sink.review == "always":
        return _ELSEWHERE
    if structural:
        return _ELSEWHERE
    if sink.scope is None:
        return _REQUESTED
    if uri != sink.scope.uri:
        return _ELSEWHERE
    if lines is None or sink.scope.lines is None:
        return _REQUESTED
    first, last = sink.scope.lines
    return _REQUESTED if first <= lines[0] and lines[1] <= last + 1 else _ELSEWHERE


def _annotation(name: str, title: str) -> dict[str, Any]:
    label = f"thinklsp: {title}"
    if name == _REQUESTED:
        return {"label": label, "needsConfirmation": False}
    return {"label": label, "description": "please look at this change", "needsConfirmation": True}
