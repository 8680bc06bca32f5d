"""The ledger of edits for one connection: what is sent is written down, and remembered for whoever asks at every key.

The store keeps the rows; here is which documents turns have written, from memory, and what a crash has left open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import SessionError
from thinklsp.engine import Engine
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.drafts import Proposal, sent
from thinklsp.lsp.edits.proposals import Kept
from thinklsp.lsp.edits.standing import Written
from thinklsp.lsp.edits.undoing import Undo
from thinklsp.lsp.edits.written_text import Origin, WrittenText
from thinklsp.sessions.ledger import Intent, LedgerEdit, LedgerEntry, Outcome, PlannedWrite, WrittenFile, WrittenTurn
from thinklsp.workspace.forms import same_but_for_form
from thinklsp.workspace.uri import uri_key

_log = logging.getLogger(__name__)

_REMEMBERED = timedelta(days=7)
_MOST_NAMES = 8


class EditLedger:
    def __init__(self, state: State, snapshots: Snapshots, engine: Engine) -> None:
        self._state = state
        self._snapshots = snapshots
        self._engine = engine
        # By document, then by turn, oldest first.
        self._written: dict[str, dict[str, Written]] = {}
        # Edits of this connection that are in the ledger.
        self._known: set[tuple[str, str, int]] = set()
        self._beginning: asyncio.Future[None] | None = None
        self.texts = WrittenText(state)

    def written_for(self, uri: str) -> Written | None:
        """The newest turn that wrote to this document and was not undone. From memory."""
        turns = self._written.get(uri_key(uri))
        return next(reversed(turns.values()), None) if turns else None

    def has_written(self, turn_id: str) -> bool:
        return any(turn_id in turns for turns in self._written.values())

    async def begin(self) -> None:
        """Once, and waited for by all that ask what turns wrote: says what a process that died has left open, and
        remembers what the last days wrote."""
        if self._beginning is None:
            self._beginning = self._state.spawn(self._begin(), awaited=True)
        await asyncio.shield(self._beginning)

    async def _begin(self) -> None:
        try:
            for edit in await self._engine.store.unknown_edits(self._snapshots.key):
                await self._tell(edit)
            since = datetime.now(UTC) - _REMEMBERED
            known = await self._engine.store.written_files(self._snapshots.key, since)
        except SessionError as error:
            _log.warning("the ledger of edits cannot be read: %s", error)
            return
        newer, self._written = self._written, {}
        titles = _titles(known)
        for file in known:
            self._remember(file.uri, Written(file.turn_id, titles[file.turn_id], file.session_id))
        for key, turns in newer.items():
            self._written.setdefault(key, {}).update(turns)

    async def intend(self, kept: Kept, ready: Sequence[Proposal]) -> Intent:
        """The edit is in the ledger and may be sent. Raises SessionError."""
        return await self._intend(kept, [_planned(sent(item)) for item in ready])

    async def _intend(self, kept: Kept, writes: Sequence[PlannedWrite]) -> Intent:
        turn_id = kept.turn_id if kept.undoes is None else kept.undoes.turn.turn_id
        undo = kept.undoes is not None
        return await self._engine.store.intend(kept.session_id, self._snapshots.key, turn_id, writes, undo=undo)

    async def settle(self, intent: Intent, outcomes: Mapping[str, Outcome], written: Iterable[FileEdit] = ()) -> None:
        """`written`: the applied files as far as they were written."""
        try:
            await self._engine.store.settle(intent, outcomes, [_planned(file) for file in written])
        except SessionError:
            _log.exception("the outcome of an edit could not be kept")

    def wrote(self, kept: Kept, files: Iterable[FileEdit]) -> None:
        """The editor has made these edits."""
        if kept.undoes is not None:
            return
        written = Written(kept.turn_id, kept.known_as or kept.title, kept.session_id)
        verified = "" if kept.verified is None else kept.verified.sentence()
        origin = Origin(written, kept.why, kept.model, verified, datetime.now().astimezone())
        for file in files:
            self._known.add(_mark(kept, file))
            self._remember(file.new_uri or file.uri, written)
            self.texts.wrote(origin, file)

    async def found(self, kept: Kept, files: Sequence[FileEdit]) -> None:
        """Edits that were not sent and are there all the same: the user took them by an action that carried them."""
        new = [file for file in files if _mark(kept, file) not in self._known]
        if not new or kept.undoes is not None:
            return
        try:
            intent = await self._intend(kept, [_planned(file) for file in new])
        except SessionError:
            _log.exception("an edit that the user took could not be kept")
            return
        await self.settle(intent, {file.uri: "applied" for file in new})
        self.wrote(kept, new)

    async def to_undo(self, turn_id: str | None, session_id: str | None = None) -> WrittenTurn | None:
        """Raises SessionError where the store cannot be read."""
        await self.begin()
        turn = await self._engine.store.last_written(self._snapshots.key, turn_id, session_id)
        if turn is None and turn_id is not None:
            # Undone or deleted by another process.
            self._forget(lambda written: written.turn_id == turn_id)
        return turn

    def forget(self, session_id: str) -> None:
        """The session was deleted, and with it what could be undone."""
        self._forget(lambda written: written.session_id == session_id)

    def _forget(self, gone: Callable[[Written], bool]) -> None:
        for key, turns in self._written.items():
            self._written[key] = {turn_id: written for turn_id, written in turns.items() if not gone(written)}
        self.texts.forget(gone)

    async def _written_by(self, turn_id: str) -> WrittenTurn | None:
        return await self._engine.store.last_written(self._snapshots.key, turn_id)

    async def undone(self, undo: Undo, uris: Iterable[str]) -> None:
        """These files of an undo's edit are as they were before the turn."""
        places = [place for uri in uris for place in undo.places.get(uri, ())]
        if not places:
            return
        for edit in undo.turn.edits:
            for entry in edit.entries:
                if entry.write.uri in places:
                    now = entry.write.new_uri or entry.write.uri
                    self._written.get(uri_key(now), {}).pop(edit.turn_id, None)
                    self.texts.forget(lambda written: written.turn_id == undo.turn.turn_id, now)
        try:
            await self._engine.store.mark_undone(undo.turn, places)
            await self._engine.tell_of_undo(undo.turn.session_id)
        except SessionError as error:
            said = f"The session of the undone turn could not be told of the undo: {error}"
            self._state.client.show_message("warning", said)

    def title_of(self, turn: WrittenTurn) -> str:
        """How people know the turn: as it was sent, or by its files."""
        for turns in self._written.values():
            if turn.turn_id in turns and turns[turn.turn_id].title:
                return turns[turn.turn_id].title
        entries = [entry for edit in turn.edits for entry in edit.entries]
        return _title([entry.write.path for entry in entries], entries[-1].made)

    def _remember(self, uri: str, written: Written) -> None:
        turns = self._written.setdefault(uri_key(uri), {})
        turns.pop(written.turn_id, None)
        turns[written.turn_id] = written

    async def _tell(self, edit: LedgerEdit) -> None:
        """Compares an edit that nobody knows the outcome of with what is there, says it once and settles it."""
        view = self._snapshots.view()
        outcomes: dict[str, Outcome] = {}
        names: dict[Outcome, list[str]] = {"applied": [], "refused": [], "unknown": []}
        for entry in edit.entries:
            uris = [entry.write.uri] if entry.write.new_uri is None else [entry.write.uri, entry.write.new_uri]
            present = [self._snapshots.present(uri, view) for uri in uris]
            seen = all(one.refusal is None and not one.desynced for one in present)
            outcome = standing(entry, *(one.text for one in present)) if seen else "unknown"
            outcomes[entry.write.uri] = outcome
            names[outcome].append(entry.write.path)
        await self._engine.store.settle(edit.intent, outcomes)
        arrived = [uri for uri, outcome in outcomes.items() if outcome == "applied"]
        undo = all(entry.undone for entry in edit.entries)
        if undo and arrived and (turn := await self._written_by(edit.turn_id)) is not None:
            known = {entry.write.uri: entry.write.new_uri or entry.write.uri for e in turn.edits for entry in e.entries}
            await self._engine.store.mark_undone(turn, [uri for uri, now in known.items() if now in arrived])
        self._state.client.show_message("warning", self._sentence(edit, names, undo=undo))

    def _sentence(self, edit: LedgerEdit, names: Mapping[Outcome, list[str]], *, undo: bool) -> str:
        title = self.title_of(WrittenTurn(edit.turn_id, edit.intent.session_id, (edit,)))
        what = f"The undo of “{title}”" if undo else f"The edit of “{title}”"
        said = {
            "applied": "looks applied in",
            "refused": "does not look applied in",
            "unknown": "cannot be told from other changes in",
        }
        parts = [f"{said[outcome]} {_listed(files)}" for outcome, files in names.items() if files]
        after = "" if undo or not names["applied"] else " thinklsp.undo takes back what was applied."
        return f"{what} was on its way when thinklsp ended: it {'; it '.join(parts)}. It is not sent again.{after}"


def standing(entry: LedgerEntry, text: str | None, new_text: str | None = None) -> Outcome:
    """What the files say about an edit without an answer. `new_text` is that of a renamed file's new name."""
    write = entry.write
    if write.new_uri is not None:
        if text is None and same_but_for_form(new_text, write.after):
            return "applied"
        return "refused" if new_text is None and same_but_for_form(text, write.before) else "unknown"
    seen = entry.state_of(text)
    if seen == "other" and same_but_for_form(write.before, write.after):
        return "unknown"
    if seen == "as after" or (seen == "other" and same_but_for_form(text, write.after)):
        return "applied"
    return "refused" if seen == "as before" or same_but_for_form(text, write.before) else "unknown"


def _titles(known: Iterable[WrittenFile]) -> dict[str, str]:
    """By turn. The title of a session is that of its first turn only."""
    files: dict[str, list[WrittenFile]] = {}
    for file in known:
        files.setdefault(file.turn_id, []).append(file)
    return {turn: _title([unquote(one.uri) for one in group], group[-1].made) for turn, group in files.items()}


def _title(paths: Iterable[str], made: datetime) -> str:
    names = dict.fromkeys(path.rpartition("/")[2] for path in paths)
    return f"{_listed(list(names))} ({made.astimezone():%H:%M})"


def _mark(kept: Kept, file: FileEdit) -> tuple[str, str, int]:
    return kept.turn_id, uri_key(file.new_uri or file.uri), hash(file.after)


def _planned(file: FileEdit) -> PlannedWrite:
    return PlannedWrite(file.uri, file.path, file.before, file.after, file.version, file.new_uri)


def _listed(files: Sequence[str]) -> str:
    names = ", ".join(files[:_MOST_NAMES])
    return names if len(files) <= _MOST_NAMES else f"{names} and {len(files) - _MOST_NAMES} more"
