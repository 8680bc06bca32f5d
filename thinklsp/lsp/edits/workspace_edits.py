"""Proposals as one WorkspaceEdit: versioned, minimal hunks, annotated where the editor can show it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thinklsp.core.choices import Review
from thinklsp.core.edits import TextEdit, hunks
from thinklsp.lsp.editor.client import Abilities
from thinklsp.lsp.edits.annotations import Annotations
from thinklsp.lsp.edits.drafts import Proposal, Scope
from thinklsp.lsp.protocol.convert import Encoding, Lines

# Written out: told to ignore a file that exists, Neovim makes no folder for a new one, which then cannot be saved;
# and lsp-mode of Emacs fails where there are no options at all.
CREATE_OPTIONS: Mapping[str, bool] = {"overwrite": False, "ignoreIfExists": False}


def workspace_edit(
    ready: Sequence[Proposal],
    can: Abilities,
    *,
    encoding: Encoding,
    title: str,
    review: Review = "auto",
    scope: Scope | None = None,
    verified: str = "",
) -> dict[str, Any]:
    """The WorkspaceEdit of all proposals, in order. `verified`: a sentence on the tests of this edit, if any ran."""
    if not can.document_changes:
        return {"changes": {item.file.uri: _edits(item, encoding) for item in ready}}
    annotated = can.change_annotations and review != "never"
    annotations = Annotations(title, review, scope, verified) if annotated else None
    changes = [change for item in ready for change in _document_changes(item, encoding, annotations)]
    edit: dict[str, Any] = {"documentChanges": changes}
    if annotations is not None and (made := annotations.all()):
        edit["changeAnnotations"] = dict(made)
    return edit


def _document_changes(item: Proposal, encoding: Encoding, annotations: Annotations | None) -> Iterator[dict[str, Any]]:
    file, creates = item.file, item.present.text is None
    whole: dict[str, str] = {}
    if annotations is not None and (file.deletes or creates or file.new_uri is not None):
        whole = annotations.whole(file)
    if file.deletes:
        yield {"kind": "delete", "uri": file.uri, "options": {"ignoreIfNotExists": True}, **whole}
        return
    if creates:
        yield {"kind": "create", "uri": file.uri, "options": dict(CREATE_OPTIONS), **whole}
    edits = _edits(item, encoding)
    if annotations is not None:
        ranges = [edit["range"] for edit in edits]
        marks = [whole] * len(edits) if creates else annotations.hunks(file, item.present.text or "", ranges)
        edits = [{**edit, **mark} for edit, mark in zip(edits, marks, strict=True)]
    if edits:
        yield {"textDocument": {"uri": file.uri, "version": item.present.version}, "edits": edits}
    if file.new_uri is not None:
        yield {"kind": "rename", "oldUri": file.uri, "newUri": file.new_uri, **whole}


def _edits(item: Proposal, encoding: Encoding) -> list[dict[str, Any]]:
    before, after = item.present.text or "", item.after or ""
    lines = Lines(before, encoding)
    return [_text_edit(edit, lines) for edit in hunks(before, after)]


def _text_edit(edit: TextEdit, lines: Lines) -> dict[str, Any]:
    return {"range": lines.range(edit.start, edit.end), "newText": edit.new_text}
