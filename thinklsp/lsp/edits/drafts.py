"""A turn's edit set merged onto what the user has now: what can be sent, and an outcome for every file that cannot.

Pure: present texts and client abilities in, proposals out; `workspace_edits` makes of them what is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from thinklsp.core.edits import FileEdit
from thinklsp.engine.results import FileStatus, not_sent
from thinklsp.lsp.editor.client import Abilities
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.edits.comparing import is_blank
from thinklsp.workspace.forms import merge_onto, same_but_for_form
from thinklsp.workspace.merge import Conflict, Merged


@dataclass(frozen=True, slots=True)
class Scope:
    """What the user asked to be changed: hunks outside need a look. `uri` None: the request named no place.

    `lines` are zero-based, both ends included. `untrusted`: the files of the edit in folders that the user does not
    trust; all their hunks need a look.
    """

    uri: str | None = None
    lines: tuple[int, int] | None = None
    untrusted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Proposal:
    """One file's part of the edit that is ready to be sent, and the text that the file will then have."""

    file: FileEdit
    present: Present
    after: str | None


def sent(item: Proposal) -> FileEdit:
    """The change as the editor is asked to make it."""
    return replace(item.file, before=item.present.text, after=item.after, version=item.present.version)


@dataclass(frozen=True, slots=True)
class Draft:
    """`ready` goes out as one workspace edit; `left_out` says why the others do not."""

    ready: tuple[Proposal, ...]
    left_out: tuple[FileStatus, ...]


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
            left_out.append(replace(made, hunks=not_sent(file, is_there=made.status == "applied")))
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
        # Editors create a file before they ask about its text.
        if is_blank(now.text) or now.text == told:
            return Proposal(file, now, file.after)
        if same_but_for_form(now.text, file.after):
            return FileStatus(file.uri, "applied")
        return FileStatus(file.uri, "conflict", "a file of this name has been made meanwhile")
    if now.text is None:
        return FileStatus(file.uri, "conflict", "the file was deleted meanwhile")
    if file.after is None:
        if _is_same(now.text, file.before) or now.text == told:
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


def _is_same(one: str, other: str) -> bool:
    return same_but_for_form(one, other) or (is_blank(one) and is_blank(other))


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
