"""Brings a turn's edit set into the editor: merged, sent once, sent once more after a version race, else kept."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from thinklsp.core.edits import FileEdit
from thinklsp.lsp.documents import Document
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
from thinklsp.lsp.snapshots import Snapshots
from thinklsp.lsp.state import State
from thinklsp.workspace.merge import Merged, merge

_KEPT = 50
_QUIET = 0.25
_LONGEST_PAUSE = 2.0
_LONGEST_ARRIVAL = 1.5
# Lines above which a look at a document no longer makes the edit of a proposal.
_LARGE = 2_000


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


@dataclass(slots=True)
class Kept:
    """Edits of a turn that the user can still take. `told`: by URI, the text in which the user was told of a conflict,
    so that asking again means the turn's text. `offer` caches what a code action shows for a document state."""

    turn_id: str
    title: str
    files: tuple[FileEdit, ...]
    told: Mapping[str, str] = field(default_factory=dict)
    offer: tuple[str, int, Offered | None] | None = None


@dataclass(frozen=True, slots=True)
class Offered:
    """`edit` None: the command does it, because the edit is too large to be made at every look, or conflicts."""

    edit: Mapping[str, Any] | None


class Applying:
    """Owns the proposals of a connection; the newest fifty are kept. Edits are sent one after the other: two drafts
    of a file that is not open would be made for the same text, and the second would land beside its place."""

    def __init__(self, state: State, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._turnstile = asyncio.Lock()

    def kept(self, turn_id: str | None) -> Kept | None:
        """The proposal of a turn, or the newest one."""
        if turn_id is None:
            return next(reversed(self._kept.values()), None)
        return self._kept.get(turn_id)

    def hold(
        self, turn_id: str, title: str, files: Sequence[FileEdit], reason: str, *, status: Status = "held"
    ) -> Outcome:
        """Keeps finished edits of a turn that did not end well; `apply` offers them."""
        self._keep(Kept(turn_id, title, tuple(files)))
        return Outcome(tuple(FileStatus(file.uri, status, reason) for file in files), turn_id)

    async def send(
        self,
        turn_id: str,
        title: str,
        files: Sequence[FileEdit],
        *,
        review: Review,
        scope: Callable[[], Scope | None] = lambda: None,
        told: Mapping[str, str] | None = None,
        sent: Callable[[], None] = lambda: None,
        applied: Callable[[Outcome], None] = lambda _: None,
    ) -> Outcome:
        """One workspace edit for all files that can be changed; the others are named and kept.

        `sent` is called when the editor is asked, `applied` when it has said yes: no cancel changes that any more.
        """
        async with self._turnstile:
            await self._pause_in_typing(files)
            for last_try in (False, True):
                made, present = self._draft(files, told)
                if not made.ready:
                    return self._outcome(turn_id, title, files, made.left_out, present)
                if not self._state.client.can.apply_edit:
                    refused = _refused(made, "the editor takes no edits from a server; use the action to apply it")
                    return self._outcome(turn_id, title, files, refused, present)
                edit = self._edit(made, title, review=review, scope=scope())
                sent()
                reply = await self._state.client.apply_edit(f"thinklsp: {title}", edit)
                if reply.applied:
                    outcome = self._applied(turn_id, title, files, made, present)
                    applied(outcome)
                    return await self._seen(outcome, made.ready, turn_id, title)
                if last_try or not self._raced(made.ready):
                    refused = _refused(made, reply.reason or "the editor did not apply the edit")
                    return self._outcome(turn_id, title, files, refused, present)
        raise AssertionError("the second try always returns")

    def offers_for(self, uri: str) -> list[tuple[Kept, Mapping[str, Any] | None]]:
        """Proposals that would still change this open document, with the edit that does it. From memory alone."""
        document = self._state.documents.get(uri)
        found: list[tuple[Kept, Mapping[str, Any] | None]] = []
        if document is None:
            return found
        for kept in reversed(self._kept.values()):
            if kept.offer is None or kept.offer[:2] != (uri, document.version):
                kept.offer = (uri, document.version, self._offer(kept, document))
            if (offered := kept.offer[2]) is not None:
                found.append((kept, offered.edit))
        return found

    def _offer(self, kept: Kept, document: Document) -> Offered | None:
        files = [file for file in kept.files if file.uri == document.uri]
        if not files:
            return None
        can = self._state.client.can
        if document.line_count > _LARGE and can.apply_edit:
            return Offered(None)
        present = {document.uri: Present(document.text, document.version, document.desynced)}
        present |= {file.new_uri: Present(None) for file in files if file.new_uri is not None}
        made = draft(files, present, can, told=kept.told)
        if made.ready:
            return Offered(self._edit(made, kept.title, review="never", scope=None))
        return None if made.left_out[0].status == "applied" else Offered(None)

    async def _pause_in_typing(self, files: Sequence[FileEdit]) -> None:
        """Some editors tell of changes late and check no version: an edit that meets typing would land beside its
        place. So it waits for a moment of quiet, but not for ever."""
        documents = [self._state.documents.get(file.uri) for file in files]
        give_up = time.monotonic() + _LONGEST_PAUSE
        while (now := time.monotonic()) < give_up:
            quiet_at = max((document.changed_at + _QUIET for document in documents if document), default=now)
            if quiet_at <= now:
                return
            await asyncio.sleep(min(quiet_at, give_up) - now)

    def _draft(self, files: Sequence[FileEdit], told: Mapping[str, str] | None) -> tuple[Draft, Mapping[str, Present]]:
        view = self._snapshots.view()
        uris = {uri for file in files for uri in (file.uri, file.new_uri) if uri is not None}
        present = {uri: self._snapshots.present(uri, view) for uri in uris}
        return draft(files, present, self._state.client.can, told=told), present

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

    def _applied(
        self, turn_id: str, title: str, files: Sequence[FileEdit], made: Draft, present: Mapping[str, Present]
    ) -> Outcome:
        for item in made.ready:
            if item.file.new_uri is not None:
                self._snapshots.settle(item.file.uri, None)
            self._snapshots.settle(item.file.new_uri or item.file.uri, item.after)
        done = tuple(FileStatus(item.file.uri, "applied") for item in made.ready)
        outcome = self._outcome(turn_id, title, files, (*done, *made.left_out), present)
        names = ", ".join(sorted(self._snapshots.unsaved()))
        said = (f"Changed but not saved yet: {names}. Save all files to keep the change.",) if names else ()
        return Outcome(outcome.files, outcome.proposal_id, said)

    async def _seen(self, outcome: Outcome, ready: Sequence[Proposal], turn_id: str, title: str) -> Outcome:
        """The editor's word counts, but what it shows is looked at again: the action stays until the text is there."""
        lost = await self._not_arrived(ready)
        if not lost:
            return outcome
        kept = self._kept.get(turn_id) or Kept(turn_id, title, ())
        files = (*kept.files, *(item.file for item in lost))
        self._keep(Kept(turn_id, title, files, kept.told))
        said = (f"The editor reported the change of {item.file.path} but does not show it." for item in lost)
        return Outcome(outcome.files, turn_id, (*outcome.notices, *said))

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

    def _outcome(
        self,
        turn_id: str,
        title: str,
        files: Sequence[FileEdit],
        statuses: Sequence[FileStatus],
        present: Mapping[str, Present],
    ) -> Outcome:
        """In the order of the edit set; what was not applied is kept, what was is no longer."""
        by_uri = {status.uri: status for status in statuses}
        left = tuple(file for file in files if by_uri[file.uri].status != "applied")
        if left:
            conflicts = (uri for uri, status in by_uri.items() if status.status == "conflict")
            texts = {uri: present[uri].text for uri in conflicts}
            self._keep(Kept(turn_id, title, left, {uri: text for uri, text in texts.items() if text is not None}))
        else:
            self._kept.pop(turn_id, None)
        return Outcome(tuple(by_uri[file.uri] for file in files), turn_id if left else None)

    def _keep(self, kept: Kept) -> None:
        self._kept[kept.turn_id] = kept
        self._kept.move_to_end(kept.turn_id)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)


def _refused(made: Draft, reason: str) -> tuple[FileStatus, ...]:
    return (*(FileStatus(item.file.uri, "refused", reason) for item in made.ready), *made.left_out)
