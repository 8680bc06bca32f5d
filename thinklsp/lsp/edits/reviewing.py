"""The user's look at an edit before it is made, in editors that cannot ask about single changes themselves.

A question, and the edit as a diff document for who wants to see it. Whatever is no clear yes means not yet: the edit is
held, and the action `apply` offers it, in the files that it would change and in the diff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from thinklsp.core.choices import Review
from thinklsp.core.edits import EditSet
from thinklsp.core.unified import counts, diff
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.drafts import Draft, Proposal, Scope
from thinklsp.lsp.edits.looks import is_beyond, is_untrusted, loads, wants_look
from thinklsp.lsp.edits.made_files import MadeFiles
from thinklsp.lsp.edits.proposals import Kept, Proposals
from thinklsp.tools.shown import visible

NOT_AGREED = "you have not said yes to it; the action to apply offers it"

_FOLDER = ".thinklsp/review"
_APPLY, _SHOW, _LATER = "Apply", "Show the diff", "Not now"
_MOST_NAMED = 6


class Reviewing:
    def __init__(self, state: State, snapshots: Snapshots, proposals: Proposals) -> None:
        self._state = state
        self._proposals = proposals
        self._files = MadeFiles(state, snapshots, _FOLDER, "review")

    async def agreed(
        self, proposed: Kept, made: Draft, review: Review, scope: Scope | None, asked: Callable[[], None]
    ) -> bool:
        """Whether the edit may be sent. Where nothing wants a look, or the editor asks by itself, nobody is asked.
        `asked` is called before the user is."""
        can = self._state.client.can
        asks_itself = can.change_annotations and can.document_changes
        if asks_itself or not can.apply_edit or not wants_look(made.ready, review, scope):
            return True
        question = f"thinklsp: “{proposed.title}” {_told(made, review, scope)}. Apply it?"
        options = (_APPLY, _SHOW, _LATER) if self._files.possible else (_APPLY, _LATER)
        asked()
        answer = await self._state.client.question(question, options)
        if answer == _SHOW and await self._show(proposed, made):
            answer = await self._state.client.question(question, (_APPLY, _LATER))
        return answer == _APPLY

    async def _show(self, proposed: Kept, made: Draft) -> bool:
        files = tuple(replace(item.file, before=item.present.text, after=item.after) for item in made.ready)
        name = "".join(char if char.isalnum() else "-" for char in proposed.title).strip("-")[:40] or "edit"
        uri = await self._files.make(name, ".diff", diff(EditSet(files)))
        if uri is None:
            return False
        self._proposals.offer_in(proposed.turn_id, uri)
        await self._files.show(uri, take_focus=True)
        return True


def _told(made: Draft, review: Review, scope: Scope | None) -> str:
    named = [_change(item) for item in made.ready]
    left = len(named) - _MOST_NAMED
    files = ", ".join(named[:_MOST_NAMED]) + (f" and {left} more" if left > 0 else "")
    if review == "auto" and any(is_untrusted(item.file, scope) for item in made.ready):
        return f"would change files in a folder whose instructions you have not agreed to: {files}"
    goes_beyond = review == "auto" and any(is_beyond(item, scope) for item in made.ready)
    return f"goes beyond the place that you asked about: {files}" if goes_beyond else f"would change {files}"


def _change(item: Proposal) -> str:
    path = visible(item.file.path)
    if item.file.deletes:
        return f"deletes {path}"
    if item.file.new_uri is not None:
        return f"renames {path} to {visible(item.file.new_path or item.file.new_uri)}"
    added, removed = counts(item.present.text or "", item.after or "")
    hosts = ", ".join(loads(item))
    return f"{path} (+{added} −{removed}{f', makes editors load from {hosts}' if hosts else ''})"
