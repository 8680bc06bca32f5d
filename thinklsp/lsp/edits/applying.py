"""Brings a turn's edit set into the editor: merged, sent once, sent once more after a version race, else kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thinklsp.core.errors import TurnRefused
from thinklsp.lsp.editor.client import ApplyReply
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.arrival import Arrival
from thinklsp.lsp.edits.drafts import (
    Draft,
    FileStatus,
    Proposal,
    Review,
    Scope,
    Status,
    draft,
)
from thinklsp.lsp.edits.ledger import EditLedger
from thinklsp.lsp.edits.outcome import Outcome
from thinklsp.lsp.edits.proposals import Kept, Proposals
from thinklsp.lsp.edits.reviewing import NOT_AGREED, Reviewing
from thinklsp.lsp.edits.sent_edit import SentEdit
from thinklsp.lsp.edits.undoing import undo_of
from thinklsp.lsp.edits.workspace_edits import workspace_edit
from thinklsp.sessions.ledger import Outcome as LedgerOutcome

_LONGEST_ARRIVAL = 1.5
_MOST_REDRAFTS = 5

_NOTHING = "There is nothing to undo: no turn has changed a file here, or all such turns are undone."
_NOTHING_OF_TURN = "There is nothing to undo of this turn: it has changed no file here, or it is undone already."
_NOTHING_OF_SESSION = (
    "There is nothing to undo in this session: none of its turns has changed a file here, or all of them are undone. "
    "`thinklsp.undo` takes back the newest turn of all sessions."
)
_UNDO_IN_DOUBT = (
    "The editor has not said whether it made the undo that was cancelled, and not all files show it. Look at them, or "
    "ask again to have it sent once more."
)
_OPEN = (
    "the editor has not said whether it made this change, and the document does not show it; ask again to have it sent "
    "once more"
)
_NOT_OPEN = (
    "the editor has not said whether it made this change, and the file on disk does not show it, but the editor may "
    "hold it unsaved; open the file to see, or ask again to have it sent once more"
)


class Applying:
    """Edits are sent one after the other: two drafts of a file that is not open would be made for the same text, and
    the second would land beside its place. What is not applied goes to `proposals`."""

    def __init__(self, state: State, snapshots: Snapshots, ledger: EditLedger) -> None:
        self._state = state
        self._snapshots = snapshots
        self._ledger = ledger
        self._arrival = Arrival(state, snapshots)
        self._turnstile = asyncio.Lock()
        # By turn: what was sent when it was ended, and the editor has not answered.
        self._unsure: dict[str, SentEdit] = {}
        self.proposals = Proposals(state)
        self._reviewing = Reviewing(state, snapshots, self.proposals)

    def hold(self, proposed: Kept, reason: str, *, status: Status = "held") -> Outcome:
        """Keeps finished edits of a turn that did not end well; `apply` offers them."""
        self.proposals.keep(replace(proposed, unsure=status == "unknown"))
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
        Where the user has to be asked first and does not agree, the edit is held.
        """
        if not await self._reviewing.agreed(proposed, (await self._draft(proposed))[0], review, scope()):
            return self.hold(proposed, NOT_AGREED)
        async with self._turnstile:
            return await self._send(proposed, review, scope, sent, applied)

    async def apply(self, kept: Kept, *, review: Review) -> Outcome:
        """As `send`, for a user who asks for it. An edit that may have arrived already is looked for first, and sent
        again only if they ask once more after they have been told."""
        async with self._turnstile:
            sending = self._unsure.get(kept.turn_id)
            if sending is not None:
                kept, there = await self._look(sending, kept)
                if not kept.files or not sending.told:
                    sending.told = True
                    return Outcome(there + self._in_doubt(sending, kept), kept.turn_id if kept.files else None)
                del self._unsure[kept.turn_id]
            return await self._taken(kept, review)

    async def _taken(self, kept: Kept, review: Review) -> Outcome:
        outcome = await self._send(replace(kept, unsure=False), review)
        done = {status.uri for status in outcome.files if status.status == "applied"}
        await self._ledger.found(kept, [file for file in kept.files if file.uri in done])
        return outcome

    def forget(self, session_id: str) -> None:
        """The session was deleted: nothing of it waits any more, and nothing of it can be undone."""
        self.proposals.forget(session_id)
        self._ledger.forget(session_id)

    async def settle_arrived(self) -> None:
        """Writes down what users brought in by the edit of an action alone: a client that takes no edits is given no
        command to come after it."""
        if self._state.client.can.apply_edit:
            return
        # What is there is looked for behind the turnstile: editors ask at every move, and each asking comes to this.
        async with self._turnstile:
            for document in self._state.documents.all():
                self.proposals.offered(document.uri)
            for kept in self.proposals.arrived():
                await self._taken(kept, "never")

    async def undo(self, turn_id: str | None, *, review: Review, session_id: str | None = None) -> Outcome:
        """Takes back what a turn wrote, the newest that wrote where none is named: of the session, or of all. What the
        user has typed since stays.

        Raises TurnRefused where there is nothing to undo.
        """
        await self.settle_arrived()
        async with self._turnstile:
            for sending in [one for one in self._unsure.values() if turn_id in (None, one.kept.turn_id)]:
                if sending.kept.undoes is None and session_id in (None, sending.kept.session_id):
                    await self._look(sending, self.proposals.get(sending.kept.turn_id) or sending.kept)
            turn = await self._ledger.to_undo(turn_id, session_id)
            if turn is None and session_id is not None:
                raise TurnRefused(_NOTHING_OF_SESSION)
            if turn is None:
                raise TurnRefused(_NOTHING if turn_id is None else _NOTHING_OF_TURN)
            title = await self._ledger.title_of(turn)
            undo = undo_of(turn, title)
            self._refuse_in_doubt(f"undo-{turn.turn_id}")
            kept = Kept(f"undo-{turn.turn_id}", turn.session_id, f"undo {title}", undo.files, undoes=undo)
            outcome = await self._send(kept, review) if undo.files else Outcome(())
            return replace(outcome, files=(*outcome.files, *undo.left_out))

    async def _send(
        self,
        proposed: Kept,
        review: Review,
        scope: Callable[[], Scope | None] = lambda: None,
        sent: Callable[[], None] = lambda: None,
        applied: Callable[[Outcome], None] = lambda _: None,
    ) -> Outcome:
        await self._state.documents.quiet(file.uri for file in proposed.files)
        races, again = 0, False
        while True:
            made, present = await self._draft(proposed)
            await self._note_undone(proposed, made)
            if not made.ready:
                return self._outcome(proposed, made.left_out, present)
            if not self._state.client.can.apply_edit:
                refused = _refused(made, "the editor takes no edits from a server; use the action to apply it")
                return self._outcome(proposed, refused, present)
            edit = await self._edit(made, proposed, review=review, scope=scope())

            def answered(sending: SentEdit, reply: ApplyReply) -> Mapping[str, LedgerOutcome]:
                return self._answered(sending, reply, applied)

            sending = SentEdit(self._state, self._ledger, proposed, made, present, edit, sent, answered)
            reply = await self._reply(sending)
            if reply is None and races < _MOST_REDRAFTS:
                races += 1
                continue
            if reply is not None and reply.applied:
                return await self._seen(self._outcome_of(proposed, made, present), proposed, made.ready)
            if reply is None or again or not sending.has_moved():
                reason = "the text kept changing" if reply is None else reply.reason
                refused = self._not_applied(made, reason or "the editor did not apply the edit")
                return self._outcome(proposed, refused, present)
            again = True

    async def _reply(self, sending: SentEdit) -> ApplyReply | None:
        """The editor is asked from a task of its own: a cancel ends the waiting and not the keeping of the ledger."""
        asking = self._state.spawn(sending.run(), awaited=True)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            # With the connection at its end the intent stays open: the next process looks what came of it.
            if not asking.done() and not asking.cancelling():
                sending.abandoned = True
                if sending.stage == "sent":
                    self._unsure[sending.kept.turn_id] = sending
                self._state.spawn(sending.abandon())
            raise

    def _answered(
        self, sending: SentEdit, reply: ApplyReply, applied: Callable[[Outcome], None]
    ) -> Mapping[str, LedgerOutcome]:
        """What the ledger is to say. Called at the moment of the answer, which may come long after a cancel."""
        made, kept = sending.made, sending.kept
        late = self._unsure.get(kept.turn_id) is sending
        if late:
            del self._unsure[kept.turn_id]
        if not reply.applied:
            if late and (held := self.proposals.get(kept.turn_id)) is not None:
                self.proposals.keep(replace(held, unsure=False))
            statuses = self._not_applied(made, "")
            there = {status.uri for status in statuses if status.status == "applied"}
            self._ledger.wrote(kept, [item.file for item in made.ready if item.file.uri in there])
            return {i.file.uri: "applied" if i.file.uri in there else "refused" for i in made.ready}
        self._settle_texts(made.ready)
        self._ledger.wrote(kept, [item.file for item in made.ready])
        outcome = self._outcome_of(kept, made, sending.present)
        if late:
            names = ", ".join(item.file.path for item in made.ready)
            said = f"The editor has made the edit of “{kept.title}” after it was cancelled: {names}."
            back = "" if kept.undoes else " thinklsp.undo takes it back."
            self._state.client.show_message("info", said + back)
        else:
            applied(outcome)
        return {item.file.uri: "applied" for item in made.ready}

    async def _look(self, sending: SentEdit, kept: Kept) -> tuple[Kept, tuple[FileStatus, ...]]:
        """What of an edit without an answer can be seen. Gives what is left of the proposal."""
        there = tuple(item for item in sending.made.ready if self._arrival.is_there(item))
        if there and sending.intent is not None:
            self._settle_texts(there)
            self._ledger.wrote(kept, [item.file for item in there])
            await self._ledger.settle(sending.intent, {item.file.uri: "applied" for item in there})
        uris = {item.file.uri for item in there}
        kept = replace(kept, files=tuple(file for file in kept.files if file.uri not in uris))
        if kept.files:
            self.proposals.keep(kept)
        else:
            self.proposals.drop(kept.turn_id)
            self._unsure.pop(kept.turn_id, None)
        return kept, tuple(FileStatus(uri, "applied") for uri in uris)

    def _refuse_in_doubt(self, undo_id: str) -> None:
        """The same undo was asked for and cancelled, and the editor may be making it. Told once."""
        sending = self._unsure.pop(undo_id, None)
        if sending is None or sending.told or all(map(self._arrival.is_there, sending.made.ready)):
            return
        sending.told = True
        self._unsure[undo_id] = sending
        raise TurnRefused(_UNDO_IN_DOUBT)

    def _in_doubt(self, sending: SentEdit, kept: Kept) -> tuple[FileStatus, ...]:
        sent = {item.file.uri for item in sending.made.ready}
        return tuple(
            FileStatus(file.uri, "unknown", _OPEN if self._state.documents.get(file.uri) else _NOT_OPEN)
            if file.uri in sent
            else FileStatus(file.uri, "held", "it waits until it is known what came of the other files")
            for file in kept.files
        )

    async def _note_undone(self, proposed: Kept, made: Draft) -> None:
        """Files that are as they were before the turn, though nothing was sent."""
        done = [status.uri for status in made.left_out if status.status == "applied"]
        if done and proposed.undoes is not None:
            await self._ledger.undone(proposed.undoes, done)

    def _not_applied(self, made: Draft, reason: str) -> tuple[FileStatus, ...]:
        """An editor may stop in the middle of several files: then some of them have their change."""
        if len(made.ready) == 1:
            return _refused(made, reason)
        there = {item.file.uri for item in made.ready if self._arrival.is_there(item)}
        return tuple(
            FileStatus(status.uri, "applied") if status.uri in there else status for status in _refused(made, reason)
        )

    async def _draft(self, proposed: Kept) -> tuple[Draft, Mapping[str, Present]]:
        """In a thread: the lines of large files are many. Whether texts have moved on is looked at before sending."""
        view = self._snapshots.view()
        uris = {uri for file in proposed.files for uri in (file.uri, file.new_uri) if uri is not None}
        present = {uri: self._snapshots.present(uri, view) for uri in uris}
        made = await asyncio.to_thread(draft, proposed.files, present, self._state.client.can, told=proposed.told)
        return made, present

    async def _edit(self, made: Draft, kept: Kept, *, review: Review, scope: Scope | None) -> dict[str, Any]:
        return await asyncio.to_thread(
            workspace_edit,
            made.ready,
            self._state.client.can,
            encoding=self._state.documents.encoding,
            title=kept.title,
            review=review,
            scope=scope,
            verified="" if kept.verified is None else kept.verified.sentence(),
        )

    def _settle_texts(self, ready: Sequence[Proposal]) -> None:
        for item in ready:
            if item.file.new_uri is not None:
                self._snapshots.settle(item.file.uri, None)
            self._snapshots.settle(item.file.new_uri or item.file.uri, item.after)

    def _outcome_of(self, proposed: Kept, made: Draft, present: Mapping[str, Present]) -> Outcome:
        done = tuple(FileStatus(item.file.uri, "applied") for item in made.ready)
        outcome = self._outcome(proposed, (*done, *made.left_out), present)
        names = ", ".join(sorted(self._snapshots.unsaved()))
        said = (f"Changed but not saved yet: {names}. Save all files to keep the change.",) if names else ()
        return replace(outcome, notices=said)

    async def _seen(self, outcome: Outcome, proposed: Kept, ready: Sequence[Proposal]) -> Outcome:
        """The editor's word counts, but what it shows is looked at again: the action stays until the text is there."""
        lost = await self._arrival.missing(ready)
        if not lost:
            return outcome
        kept = self.proposals.get(proposed.turn_id) or replace(proposed, files=())
        self.proposals.keep(replace(kept, files=(*kept.files, *(item.file for item in lost))))
        said = (f"The editor reported the change of {item.file.path} but does not show it." for item in lost)
        return Outcome(outcome.files, proposed.turn_id, (*outcome.notices, *said))

    def _outcome(self, proposed: Kept, statuses: Sequence[FileStatus], present: Mapping[str, Present]) -> Outcome:
        """In the order of the edit set; what was not applied is kept, what was is no longer."""
        by_uri = {status.uri: status for status in statuses}
        left = tuple(file for file in proposed.files if by_uri[file.uri].status != "applied")
        if proposed.undoes is not None and self._state.client.can.apply_edit:
            # Whoever wants it again asks for the undo again.
            left = ()
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
