"""Edits of turns that wait for the user: kept until they are taken, offered where they would still change something or
were asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thinklsp.core.edits import FileEdit
from thinklsp.core.problems import Verified
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.comparing import described
from thinklsp.lsp.edits.drafts import draft
from thinklsp.lsp.edits.undoing import Undo
from thinklsp.lsp.edits.workspace_edits import workspace_edit

_KEPT = 50
_MAX_TOLD = 40
# Lines above which a look at a document no longer makes the edit of a proposal.
_LARGE = 2_000


@dataclass(frozen=True, slots=True)
class Kept:
    """A turn's edit as the user can take it.

    `known_as`: the name of this turn among those of its session, empty if it is the title.
    `told`: by URI, the text in which they were told of a conflict, so that asking again means the turn's text.
    `unsure`: it was sent, and the editor has not said what came of it. `asked`: the editor did not make all of it.
    `undoes`: it takes back what an earlier turn wrote. `why`: what the turn said at its end. `verified`: the tests of
    this edit, None where none ran.
    """

    turn_id: str
    session_id: str
    title: str
    files: tuple[FileEdit, ...]
    told: Mapping[str, str] = field(default_factory=dict)
    known_as: str = ""
    unsure: bool = False
    asked: bool = False
    undoes: Undo | None = None
    why: str = ""
    model: str = ""
    verified: Verified | None = None


@dataclass(frozen=True, slots=True)
class Offered:
    """`edit` None: the command does it, because the edit is too large to be made at every look, conflicts, or may
    have arrived already."""

    kept: Kept
    edit: Mapping[str, Any] | None


class Proposals:
    """One per connection; the newest fifty are kept."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._looks: dict[str, tuple[Document, int, Offered | None]] = {}
        self._there: set[str] = set()
        # By turn, the documents in which its edit was asked for or shown.
        self._about: dict[str, tuple[str, ...]] = {}

    def get(self, turn_id: str | None) -> Kept | None:
        """The proposal of a turn, or the newest one."""
        if turn_id is None:
            return next(reversed(self._kept.values()), None)
        return self._kept.get(turn_id)

    def keep(self, kept: Kept) -> None:
        about = self._about.get(kept.turn_id, ())
        self.drop(kept.turn_id)
        self._kept[kept.turn_id] = kept
        self.offer_in(kept.turn_id, *about)
        while len(self._kept) > _KEPT:
            self.drop(next(iter(self._kept)))

    def drop(self, turn_id: str) -> None:
        self._kept.pop(turn_id, None)
        self._looks.pop(turn_id, None)
        self._there.discard(turn_id)
        self._about.pop(turn_id, None)

    def offer_in(self, turn_id: str, *uris: str) -> None:
        """In these documents, too, the edit of this turn is offered if it is kept: where it was asked for, since the
        files that it changes need not be open, and where it stands as a diff."""
        self._about[turn_id] = (*self._about.get(turn_id, ()), *uris)
        for other in list(self._about)[:-_KEPT]:
            del self._about[other]

    def forget(self, session_id: str) -> None:
        for kept in [kept for kept in self._kept.values() if kept.session_id == session_id]:
            self.drop(kept.turn_id)

    def told_of(self, session_id: str) -> str:
        """What waits of a session's edits, as words for the model; empty if nothing does."""
        waiting = [kept for kept in self._kept.values() if kept.session_id == session_id and kept.undoes is None]
        files = [described(file) for kept in waiting for file in kept.files]
        more = f" and {len(files) - _MAX_TOLD} more files" if len(files) > _MAX_TOLD else ""
        return ", ".join(files[:_MAX_TOLD]) + more

    def may_arrive(self) -> bool:
        """Whether an edit can come into a document without an answer to a request of ours."""
        if not self._state.client.can.apply_edit:
            return bool(self._kept)
        return any(kept.asked for kept in self._kept.values())

    def arrived(self) -> list[Kept]:
        """Those that a look has found in their document though nothing can be sent: the edit of an action was taken."""
        return [self._kept[turn_id] for turn_id in self._there]

    def offered(self, uri: str) -> list[Offered]:
        """What would still change this open document, newest first. From memory alone."""
        document = self._state.documents.get(uri)
        if document is None:
            return []
        looks = [self._look(kept, document) for kept in reversed(self._kept.values())]
        return [look for look in looks if look is not None]

    def _look(self, kept: Kept, document: Document) -> Offered | None:
        """Remembered for as long as the document stays as it is: editors ask at every move of the cursor. One that was
        opened again is another, though it may have the same version."""
        seen = self._looks.get(kept.turn_id)
        if seen is None or seen[0] is not document or seen[1] != document.version:
            seen = (document, document.version, self._offer(kept, document))
            self._looks[kept.turn_id] = seen
        return seen[2]

    def _offer(self, kept: Kept, document: Document) -> Offered | None:
        files = [file for file in kept.files if file.uri == document.uri]
        if not files:
            return Offered(kept, None) if document.uri in self._about.get(kept.turn_id, ()) else None
        can = self._state.client.can
        if document.line_count > _LARGE and can.apply_edit:
            return Offered(kept, None)
        present = {document.uri: Present(document.text, document.version, document.desynced)}
        present |= {file.new_uri: Present(None) for file in files if file.new_uri is not None}
        made = draft(files, present, can, told=kept.told)
        if not made.ready:
            if made.left_out[0].status != "applied":
                return Offered(kept, None)
            if not can.apply_edit or kept.asked:
                self._there.add(kept.turn_id)
            return None
        self._there.discard(kept.turn_id)
        if kept.unsure and can.apply_edit:
            return Offered(kept, None)
        encoding = self._state.documents.encoding
        return Offered(kept, workspace_edit(made.ready, can, encoding=encoding, title=kept.title, review="never"))
