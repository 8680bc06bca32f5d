"""Editors that make a part of an edit and answer `applied: true`, as a refactor preview with unchecked boxes does."""

from __future__ import annotations

from typing import Any

from tests.support.raw_client import RawClient

Json = Any


def accept_files(client: RawClient, *names: str) -> None:
    """From now on only the changes of these files are made."""
    client.editor.handlers["workspace/applyEdit"] = lambda params: client.editor.apply_edit(
        {"edit": only(params["edit"], lambda uri, _: uri.endswith(names))}
    )


def accept_hunks(client: RawClient, *numbers: int) -> None:
    """From now on only these hunks are made, counted from 0 through the whole edit; files are created all the same."""
    client.editor.handlers["workspace/applyEdit"] = lambda params: client.editor.apply_edit(
        {"edit": only(params["edit"], lambda _, number: number is None or number in numbers)}
    )


def only(edit: Json, accepts: Any) -> Json:
    """The accepted part of a workspace edit. `accepts(uri, number)`: `number` counts hunks, None is an operation."""
    kept, number = [], -1
    for change in edit["documentChanges"]:
        if "kind" in change:
            if accepts(change.get("uri") or change["oldUri"], None):
                kept.append(change)
            continue
        hunks = []
        for hunk in change["edits"]:
            number += 1
            if accepts(change["textDocument"]["uri"], number):
                hunks.append(hunk)
        if hunks:
            kept.append({**change, "edits": hunks})
    return {**edit, "documentChanges": kept}
