"""Brings a turn's edit set into the editor: merged, sent once, sent once more after a version race. What the editor and
the disk do not show then is not applied: it waits under `apply`, hunk by hunk.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import SessionError, TurnRefused
from thinklsp.engine.results import FileStatus, Outcome, Status, not_sent
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.arrival import Arrivals, unsaved_notices
from thinklsp.lsp.edits.drafts import Draft, Scope, draft
from thinklsp.lsp.edits.ledger import EditLedger
from thinklsp.lsp.edits.outcome import statuses, waiting_sentence
from thinklsp.lsp.edits.proposals import Kept, Proposals
from thinklsp.lsp.edits.reviewing import NOT_AGREED, Reviewing
from thinklsp.lsp.edits.sent_edit import Answered, SentEdit
from thinklsp.lsp.edits.unanswered import Unanswered
from thinklsp.lsp.edits.undoing import undo_of
from thinklsp.lsp.edits.workspace_edits import workspace_edit
from thinklsp.tools.shown import visible

_MOST_REDRAFTS = 5

_NOTHING = "There is nothing to undo: no turn has changed a file here, or all such turns are undone."
_NOTHING_OF_TURN = "There is nothing to undo of this turn: it has changed no file here, or it is undone already."
_NOTHING_OF_SESSION = (
    "There is nothing to undo in this session: none of its turns has changed a file here, or all of them are undone. "
    "`thinklsp.undo` takes back the newest turn of all sessions."
)


class Applying:
    """Edits are sent one after the other: two drafts of a file that is not open would be made for the same text, and
    the second would land beside its place. What is not applied goes to `proposals`."""

    def __init__(self, state: State, snapshots: Snapshots, ledger: EditLedger) -> None:
        self._state = state
        self._snapshots = snapshots
        self._ledger = ledger
        self._arrivals = Arrivals(state, snapshots)
        self._turnstile = asyncio.Lock()
        self.proposals = Proposals(state)
        self._unanswered = Unanswered(state, ledger, self._arrivals, self.proposals)
        self._reviewing = Reviewing(state, snapshots, self.proposals)

    def hold(self, proposed: Kept, reason: str, *, status: Status = "held") -> Outcome:
        """Keeps finished edits of a turn that did not end well; `apply` offers them."""
        self.proposals.keep(replace(proposed, unsure=status == "unknown"))
        statuses = (FileStatus(file.uri, status, reason, not_sent(file)) for file in proposed.files)
        return Outcome(tuple(statuses), proposed.turn_id)

    async def send(
        self,
        proposed: Kept,
        *,
        review: Review,
        scope: Callable[[], Scope | None] = lambda: None,
        asked: Callable[[], None] = lambda: None,
        sent: Callable[[bool], None] = lambda _: None,
        applied: Callable[[Outcome], None] = lambda _: None,
    ) -> Outcome:
        """One workspace edit for all files that can be changed; the others are named and kept.

        `asked` is called when the server asks the user. `sent` is called when the edit goes to the editor, with
        whether the editor asks the user about it; `applied` when the editor has said yes: no cancel changes that any
        more. Where the user has to be asked first and does not agree, the edit is held.
        """
        made = (await self._draft(proposed))[0]
        if not await self._reviewing.agreed(proposed, made, review, scope(), asked):
            return self.hold(proposed, NOT_AGREED)
        async with self._turnstile:
            return await self._send(proposed, review, scope, sent, applied)

    async def apply(self, kept: Kept, *, review: Review) -> Outcome:
        """As `send`, for a user who asks for it. An edit that may have arrived already is looked for first, and sent
        again only if they ask once more after they have been told."""
        async with self._turnstile:
            left, outcome = await self._unanswered.before_apply(kept)
            if outcome is not None:
                return outcome
            return await self._send(replace(left, unsure=False), review, records=True)

    def forget(self, session_id: str) -> None:
        """The session was deleted: nothing of it waits any more, and nothing of it can be undone."""
        self.proposals.forget(session_id)
        self._ledger.forget(session_id)

    async def settle_arrived(self) -> None:
        """Record what documents show of edits that wait: the edit of an action was taken by a client that is sent no
        command after it, or the editor showed a change late."""
        if not self.proposals.may_arrive():
            return
        # What is there is looked for behind the turnstile: editors ask at every move, and each asking comes to this.
        async with self._turnstile:
            for document in self._state.documents.all():
                self.proposals.offered(document.uri)
            for kept in self.proposals.arrived():
                await self._send(replace(kept, unsure=False), "never", records=True)

    async def undo(self, turn_id: str | None, *, session_id: str | None = None) -> Outcome:
        """Take back what a turn wrote, the newest that wrote if none is named: of the session, or of all. The text that
        the user typed since then stays. The user asked for it by name, so nothing is reviewed.

        Raises TurnRefused where there is nothing to undo.
        """
        await self.settle_arrived()
        async with self._turnstile:
            await self._unanswered.look_for(turn_id, session_id)
            turn = await self._ledger.to_undo(turn_id, session_id)
            if turn is None and session_id is not None:
                raise TurnRefused(_NOTHING_OF_SESSION)
            if turn is None:
                raise TurnRefused(_NOTHING if turn_id is None else _NOTHING_OF_TURN)
            title = self._ledger.title_of(turn)
            undo = undo_of(turn, title)
            await self._unanswered.refuse_undo(f"undo-{turn.turn_id}")
            kept = Kept(f"undo-{turn.turn_id}", turn.session_id, f"undo: {title}", undo.files, undoes=undo)
            outcome = await self._send(kept, "never") if undo.files else Outcome(())
            return replace(outcome, files=(*outcome.files, *undo.left_out))

    async def _send(
        self,
        proposed: Kept,
        review: Review,
        scope: Callable[[], Scope | None] = lambda: None,
        sent: Callable[[bool], None] = lambda _: None,
        applied: Callable[[Outcome], None] = lambda _: None,
        *,
        records: bool = False,
    ) -> Outcome:
        """`records`: changes that are there already are the turn's, too: an action has carried them."""
        await self._state.documents.quiet(file.uri for file in proposed.files)
        races, again = 0, False
        while True:
            made, present = await self._draft(proposed)
            await self._note_found(proposed, made, records=records)
            if not made.ready:
                return self._outcome(proposed, made.left_out, present)
            if not self._state.client.can.apply_edit:
                refused = _refused(made, "the editor takes no edits from a server; use the action to apply it")
                return self._outcome(proposed, refused, present)
            edit = await self._edit(made, proposed, review=review, scope=scope())
            sending = SentEdit(
                self._state,
                self._ledger,
                self._arrivals,
                proposed,
                made,
                present,
                edit,
                sent,
                partial(self._answered, applied),
            )
            try:
                answered = await self._answer(sending)
            except SessionError as error:
                return self._outcome(proposed, _refused(made, str(error)), present)
            if answered is None and races >= _MOST_REDRAFTS:
                return self._outcome(proposed, _refused(made, "the text kept changing"), present)
            if answered is None:
                races += 1
            elif answered.reply.applied or again or not sending.has_moved():
                return await self._save(sending, answered, self._conclude(sending, answered))
            else:
                again = True

    def _answered(self, applied: Callable[[Outcome], None], sending: SentEdit, answered: Answered) -> None:
        """Called at once, before anything can be cancelled. An edit that was refused may be sent once more."""
        is_late = self._unanswered.has(sending)
        outcome = self._conclude(sending, answered)
        if answered.reply.applied and not is_late:
            applied(outcome)

    async def _answer(self, sending: SentEdit) -> Answered | None:
        """The editor is asked from a task of its own: a cancel ends the waiting and not the keeping of the ledger."""
        asking = self._state.spawn(sending.run(), awaited=True)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            # With the connection at its end the intent stays open: the next process looks what came of it.
            if not asking.done() and not asking.cancelling():
                if sending.stage == "answered":
                    sending.hurry.set()
                    await asyncio.shield(asking)
                    raise
                sending.abandoned = True
                if sending.stage == "sent":
                    self._unanswered.add(sending)
                self._state.spawn(sending.abandon())
            raise

    def _conclude(self, sending: SentEdit, answered: Answered) -> Outcome:
        """Keep what did not arrive and remember what did, once. The answer may come long after a cancel."""
        if sending.outcome is not None:
            return sending.outcome
        kept, arrived = sending.kept, answered.arrived
        late = self._unanswered.drop(sending)
        written = [arrival.written for arrival in arrived.values() if arrival.written is not None]
        self._ledger.wrote(kept, written)
        reason = answered.reply.reason
        done = statuses(arrived, reason, undo=kept.undoes is not None)
        rests = {uri: arrival.rest for uri, arrival in arrived.items() if arrival.rest is not None}
        outcome = self._outcome(kept, (*done, *sending.made.left_out), sending.present, rests)
        if kept.undoes is None:
            outcome = replace(outcome, waiting=waiting_sentence(outcome.files, _names(kept.files), reason))
        if late and written:
            names = ", ".join(file.path for file in written)
            said = f"The editor has made the edit of “{kept.title}” after it was cancelled: {names}."
            back = "" if kept.undoes else " thinklsp.undo takes it back."
            self._state.client.show_message("info", said + back)
        sending.outcome = replace(outcome, notices=unsaved_notices(self._arrivals.unsaved(sending.made.ready, arrived)))
        return sending.outcome

    async def _save(self, sending: SentEdit, answered: Answered, outcome: Outcome) -> Outcome:
        """Ask the editor to save the files that it opened for the edit alone: on disk they would stay as they were
        until the user finds them. A file that was open before, and one that the user has typed in, is theirs to save.
        """
        ready, arrived = sending.made.ready, answered.arrived
        whole = [file.uri for file in self._arrivals.unsaved(ready, arrived) if file.is_whole]
        if not whole or not await self._state.client.save(whole):
            return outcome
        return replace(outcome, notices=unsaved_notices(self._arrivals.unsaved(ready, arrived)))

    async def _note_found(self, proposed: Kept, made: Draft, *, records: bool) -> None:
        """Record files that are as they were to be, though nothing was sent."""
        done = [status.uri for status in made.left_out if status.status == "applied"]
        if done and proposed.undoes is not None:
            await self._ledger.undone(proposed.undoes, done)
        elif done and records:
            await self._ledger.found(proposed, [file for file in proposed.files if file.uri in done])

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

    def _outcome(
        self,
        proposed: Kept,
        found: Sequence[FileStatus],
        present: Mapping[str, Present],
        rests: Mapping[str, FileEdit] | None = None,
    ) -> Outcome:
        """In the order of the edit set. What was not applied is kept: of a file in `rests` the rest."""
        by_uri = {status.uri: status for status in found}
        files = tuple(by_uri[file.uri] for file in proposed.files)
        left = tuple(
            (rests or {}).get(file.uri, file) for file in proposed.files if by_uri[file.uri].status != "applied"
        )
        if proposed.undoes is not None and self._state.client.can.apply_edit:
            # Whoever wants it again asks for the undo again.
            left = ()
        if left:
            texts = {file.uri: present[file.uri].text for file in files if file.status == "conflict"}
            told = {uri: text for uri, text in texts.items() if text is not None}
            asked = any(file.waits for file in files)
            self.proposals.keep(replace(proposed, files=left, told=told, unsure=False, asked=asked))
        else:
            self.proposals.drop(proposed.turn_id)
        return Outcome(files, proposed.turn_id if left else None)


def _names(files: Sequence[FileEdit]) -> dict[str, str]:
    """What people call the files: the last part of the path, or the whole path if two files have the same name."""
    short = {file.uri: file.path.rpartition("/")[2] for file in files}
    doubled = {name for name, count in Counter(short.values()).items() if count > 1}
    return {file.uri: visible(file.path if short[file.uri] in doubled else short[file.uri]) for file in files}


def _refused(made: Draft, reason: str) -> tuple[FileStatus, ...]:
    refused = (FileStatus(item.file.uri, "refused", reason, not_sent(item.file)) for item in made.ready)
    return (*refused, *made.left_out)
