"""Brings a turn's edit set into the editor: merged, sent once, sent once more after a version race, else kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from thinklsp.lsp.edits import (
    Draft,
    FileStatus,
    Present,
    Proposal,
    Review,
    Scope,
    Status,
    draft,
    workspace_edit,
)
from thinklsp.lsp.proposals import Kept, Proposals
from thinklsp.lsp.snapshots import Snapshots
from thinklsp.lsp.state import State
from thinklsp.workspace.merge import Merged, merge

_LONGEST_ARRIVAL = 1.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an edit set. `notices` are sentences for the user."""

    files: tuple[FileStatus, ...]
    proposal_id: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def applied(self) -> Literal["all", "some", "none"]:
        done = [file.status == "applied" for file in self.files]
        if all(done):
            return "all"
        return "some" if any(done) else "none"

    def json(self) -> dict[str, Any]:
        files = [file.json() for file in self.files]
        return {"applied": self.applied, "files": files, "proposalId": self.proposal_id}


class Applying:
    """Edits are sent one after the other: two drafts of a file that is not open would be made for the same text, and
    the second would land beside its place. What is not applied goes to `proposals`."""

    def __init__(self, state: State, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        self._turnstile = asyncio.Lock()
        self.proposals = Proposals(state)

    def hold(self, proposed: Kept, reason: str, *, status: Status = "held") -> Outcome:
        """Keeps finished edits of a turn that did not end well; `apply` offers them."""
        self.proposals.keep(proposed)
        return Outcome(tuple(FileStatus(file.uri, status, reason) for file in proposed.files), proposed.turn_id)

    async def send(
        self,
        proposed: Kept,
        *,
        review: Review,
        scope: Callable[[], Scope | None] = lambda: None,
        sent: Callable[[], None] = lambda: None,
        applied: Callable[[Outcome], None] = lambda _: None,
    ) -> Outcome:
        """One workspace edit for all files that can be changed; the others are named and kept.

        `sent` is called when the editor is asked, `applied` when it has said yes: no cancel changes that any more.
        """
        async with self._turnstile:
            await self._state.documents.quiet(file.uri for file in proposed.files)
            for last_try in (False, True):
                made, present = self._draft(proposed)
                if not made.ready:
                    return self._outcome(proposed, made.left_out, present)
                if not self._state.client.can.apply_edit:
                    refused = _refused(made, "the editor takes no edits from a server; use the action to apply it")
                    return self._outcome(proposed, refused, present)
                edit = self._edit(made, proposed.title, review=review, scope=scope())
                sent()
                reply = await self._state.client.apply_edit(f"thinklsp: {proposed.title}", edit)
                if reply.applied:
                    outcome = self._applied(proposed, made, present)
                    applied(outcome)
                    return await self._seen(outcome, proposed, made.ready)
                if last_try or not self._raced(made.ready):
                    refused = _refused(made, reply.reason or "the editor did not apply the edit")
                    return self._outcome(proposed, refused, present)
        raise AssertionError("the second try always returns")

    def _draft(self, proposed: Kept) -> tuple[Draft, Mapping[str, Present]]:
        view = self._snapshots.view()
        uris = {uri for file in proposed.files for uri in (file.uri, file.new_uri) if uri is not None}
        present = {uri: self._snapshots.present(uri, view) for uri in uris}
        return draft(proposed.files, present, self._state.client.can, told=proposed.told), present

    def _edit(self, made: Draft, title: str, *, review: Review, scope: Scope | None) -> dict[str, Any]:
        return workspace_edit(
            made.ready,
            self._state.client.can,
            encoding=self._state.documents.encoding,
            title=title,
            review=review,
            scope=scope,
        )

    def _raced(self, ready: Sequence[Proposal]) -> bool:
        """True when a document has moved on since the edit was made for it."""
        for item in ready:
            document = self._state.documents.get(item.file.uri)
            if (None if document is None else document.version) != item.present.version:
                return True
        return False

    def _applied(self, proposed: Kept, made: Draft, present: Mapping[str, Present]) -> Outcome:
        for item in made.ready:
            if item.file.new_uri is not None:
                self._snapshots.settle(item.file.uri, None)
            self._snapshots.settle(item.file.new_uri or item.file.uri, item.after)
        done = tuple(FileStatus(item.file.uri, "applied") for item in made.ready)
        outcome = self._outcome(proposed, (*done, *made.left_out), present)
        names = ", ".join(sorted(self._snapshots.unsaved()))
        said = (f"Changed but not saved yet: {names}. Save all files to keep the change.",) if names else ()
        return replace(outcome, notices=said)

    async def _seen(self, outcome: Outcome, proposed: Kept, ready: Sequence[Proposal]) -> Outcome:
        """The editor's word counts, but what it shows is looked at again: the action stays until the text is there."""
        lost = await self._not_arrived(ready)
        if not lost:
            return outcome
        kept = self.proposals.get(proposed.turn_id) or replace(proposed, files=())
        self.proposals.keep(replace(kept, files=(*kept.files, *(item.file for item in lost))))
        said = (f"The editor reported the change of {item.file.path} but does not show it." for item in lost)
        return Outcome(outcome.files, proposed.turn_id, (*outcome.notices, *said))

    async def _not_arrived(self, ready: Sequence[Proposal]) -> tuple[Proposal, ...]:
        """Open documents that do not hold their change a moment after the editor said so. Some editors drop an edit
        that meets typing and still report it as applied."""
        waiting = tuple(item for item in ready if self._lacks(item))
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_ARRIVAL):
                while waiting:
                    self._state.documents.touched.clear()
                    await self._state.documents.touched.wait()
                    waiting = tuple(item for item in waiting if self._lacks(item))
        return waiting

    def _lacks(self, item: Proposal) -> bool:
        document = self._state.documents.get(item.file.uri)
        if document is None or item.present.text is None or item.after is None:
            return False
        if document.text == item.after:
            return False
        merged = merge(item.present.text, item.after, document.text)
        return isinstance(merged, Merged) and merged.text != document.text

    def _outcome(self, proposed: Kept, statuses: Sequence[FileStatus], present: Mapping[str, Present]) -> Outcome:
        """In the order of the edit set; what was not applied is kept, what was is no longer."""
        by_uri = {status.uri: status for status in statuses}
        left = tuple(file for file in proposed.files if by_uri[file.uri].status != "applied")
        if left:
            texts = {file.uri: present[file.uri].text for file in left if by_uri[file.uri].status == "conflict"}
            told = {uri: text for uri, text in texts.items() if text is not None}
            self.proposals.keep(replace(proposed, files=left, told=told))
        else:
            self.proposals.drop(proposed.turn_id)
        files = tuple(by_uri[file.uri] for file in proposed.files)
        return Outcome(files, proposed.turn_id if left else None)


def _refused(made: Draft, reason: str) -> tuple[FileStatus, ...]:
    return (*(FileStatus(item.file.uri, "refused", reason) for item in made.ready), *made.left_out)
