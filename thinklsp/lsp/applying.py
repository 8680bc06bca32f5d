"""Brings a turn's edit set into the editor: merged, sent once, sent once more after a version race, else kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from thinklsp.core.edits import FileEdit
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

_KEPT = 50


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
    """Edits of a turn that the user can still take. `offer` caches what a code action shows for one document state."""

    turn_id: str
    title: str
    files: tuple[FileEdit, ...]
    offer: tuple[str, int, Mapping[str, Any] | None] | None = None


class Applying:
    """Owns the proposals of a connection; the newest fifty are kept."""

    def __init__(self, state: State, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def kept(self, turn_id: str | None) -> Kept | None:
        """The proposal of a turn, or the newest one."""
        if turn_id is None:
            return next(reversed(self._kept.values()), None)
        return self._kept.get(turn_id)

    def hold(
        self, turn_id: str, title: str, files: Sequence[FileEdit], reason: str, *, status: Status = "held"
    ) -> Outcome:
        """Keeps finished edits of a turn that did not end well; `apply` offers them."""
        self._keep(turn_id, title, tuple(files))
        return Outcome(tuple(FileStatus(file.uri, status, reason) for file in files), turn_id)

    async def send(
        self,
        turn_id: str,
        title: str,
        files: Sequence[FileEdit],
        *,
        review: Review,
        scope: Scope | None = None,
        ours_wins: bool = False,
    ) -> Outcome:
        """One workspace edit for all files that can be changed; the others are named and kept."""
        for last_try in (False, True):
            made = self._draft(files, ours_wins=ours_wins)
            if not made.ready:
                return self._outcome(turn_id, title, files, made.left_out)
            if not self._state.client.can.apply_edit:
                refused = self._refused(made, "the editor takes no edits from a server; use the action to apply it")
                return self._outcome(turn_id, title, files, refused)
            reply = await self._state.client.apply_edit(
                f"thinklsp: {title}", self._edit(made, title, review=review, scope=scope)
            )
            if reply.applied:
                return self._applied(turn_id, title, files, made)
            if last_try or not self._raced(made.ready):
                refused = self._refused(made, reply.reason or "the editor did not apply the edit")
                return self._outcome(turn_id, title, files, refused)
        raise AssertionError("the second try always returns")

    def offers_for(self, uri: str) -> list[tuple[Kept, Mapping[str, Any]]]:
        """Proposals that would still change this open document, each with the edit that does it. From memory alone."""
        document = self._state.documents.get(uri)
        found: list[tuple[Kept, Mapping[str, Any]]] = []
        if document is None:
            return found
        for kept in reversed(self._kept.values()):
            if kept.offer is None or kept.offer[:2] != (uri, document.version):
                kept.offer = (uri, document.version, self._offer(kept, uri))
            if (edit := kept.offer[2]) is not None:
                found.append((kept, edit))
        return found

    def _offer(self, kept: Kept, uri: str) -> Mapping[str, Any] | None:
        document = self._state.documents.get(uri)
        files = [file for file in kept.files if file.uri == uri]
        if document is None or not files:
            return None
        present = {uri: Present(document.text, document.version, document.desynced)}
        made = draft(files, present, self._state.client.can, ours_wins=True)
        return self._edit(made, kept.title, review="never", scope=None) if made.ready else None

    def _draft(self, files: Sequence[FileEdit], *, ours_wins: bool) -> Draft:
        view = self._snapshots.view()
        present = {file.uri: self._snapshots.present(file, view) for file in files}
        return draft(files, present, self._state.client.can, ours_wins=ours_wins)

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

    def _applied(self, turn_id: str, title: str, files: Sequence[FileEdit], made: Draft) -> Outcome:
        for item in made.ready:
            if item.file.new_uri is not None:
                self._snapshots.settle(item.file.uri, None)
            self._snapshots.settle(item.file.new_uri or item.file.uri, item.after)
        done = tuple(FileStatus(item.file.uri, "applied") for item in made.ready)
        outcome = self._outcome(turn_id, title, files, (*done, *made.left_out))
        unsaved = self._unsaved({item.file.uri for item in made.ready})
        return Outcome(outcome.files, outcome.proposal_id, unsaved)

    def _unsaved(self, uris: set[str]) -> tuple[str, ...]:
        view = self._snapshots.view()
        names = [view.resolve(uri).shown for uri in view.unsaved() if uri in uris]
        if not names:
            return ()
        return (f"Changed but not saved yet: {', '.join(sorted(names))}. Save all files to keep the change.",)

    def _outcome(self, turn_id: str, title: str, files: Sequence[FileEdit], statuses: Sequence[FileStatus]) -> Outcome:
        """In the order of the edit set; what was not applied is kept, what was is no longer."""
        by_uri = {status.uri: status for status in statuses}
        left = tuple(file for file in files if by_uri[file.uri].status != "applied")
        if left:
            self._keep(turn_id, title, left)
        else:
            self._kept.pop(turn_id, None)
        return Outcome(tuple(by_uri[file.uri] for file in files), turn_id if left else None)

    def _refused(self, made: Draft, reason: str) -> tuple[FileStatus, ...]:
        return (*(FileStatus(item.file.uri, "refused", reason) for item in made.ready), *made.left_out)

    def _keep(self, turn_id: str, title: str, files: tuple[FileEdit, ...]) -> None:
        self._kept[turn_id] = Kept(turn_id, title, files)
        self._kept.move_to_end(turn_id)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
