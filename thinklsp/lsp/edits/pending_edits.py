"""The edits that the user has not applied yet. Each is offered in the documents that it changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from lsprotocol.types import WorkspaceEdit

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.check_results import VerificationOutcome
from thinklsp.core.edits import FileEdit
from thinklsp.engine.merge_plan import FileState, MergePlan, UndoPlan, plan_merge
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.edits.edit_comparison import SplitEdit, describe_change
from thinklsp.lsp.edits.workspace_edits import build_workspace_edit

_MAX_PENDING = 50
_MAX_DESCRIBED = 40
# If a document has more lines, the offer does not include the edit itself.
_MAX_OFFER_LINES = 2_000


PendingState = Literal["held", "unknown", "incomplete"]
"""Why an edit is pending.

`held`: it was not sent or not applied. `unknown`: it was sent, and the editor did not answer yet. `incomplete`: the
editor applied only a part of it.
"""


@dataclass(frozen=True, slots=True)
class PendingEdit:
    """A turn's edit that the user can still apply.

    `turn_name` distinguishes the turn within its session. It is empty if the title is sufficient. `conflict_texts` maps
    URIs to texts that conflicted with the edit. If the user applies the edit again, the turn's text replaces them.
    `undo` is set if the edit undoes a turn. `explanation` is the end of the turn's answer. `verified` is the result of
    the tests, or None if none ran. `declined` contains the hunks that the user declined in the editor's review, by the
    file's URI. They become part of `files` after the kept hunks are sent.
    """

    turn_id: str
    session_id: str
    title: str
    files: tuple[FileEdit, ...]
    conflict_texts: Mapping[str, str] = field(default_factory=dict)
    turn_name: str = ""
    state: PendingState = "held"
    undo: UndoPlan | None = None
    explanation: str = ""
    model: str = ""
    verified: VerificationOutcome | None = None
    declined: Mapping[str, SplitEdit] = field(default_factory=dict)

    def move(self, uris: Mapping[str, str]) -> PendingEdit:
        """Return the edit with other URIs for its files. `uris` maps the present URIs to the new ones."""

        def move_file(file: FileEdit) -> FileEdit:
            return replace(file, uri=uris.get(file.uri, file.uri))

        if all(old == new for old, new in uris.items()):
            return self
        undo = self.undo
        declined = (
            replace(
                split, change=move_file(split.change), missing_part=split.missing_part and move_file(split.missing_part)
            )
            for split in self.declined.values()
        )
        return replace(
            self,
            files=tuple(map(move_file, self.files)),
            conflict_texts={uris.get(uri, uri): text for uri, text in self.conflict_texts.items()},
            declined={split.change.uri: split for split in declined},
            undo=undo
            and replace(undo, ledger_uris={uris.get(uri, uri): names for uri, names in undo.ledger_uris.items()}),
        )


@dataclass(frozen=True, slots=True)
class OfferedEdit:
    """An offer to apply a pending edit. Clients that accept edits in code actions can apply `edit` directly.

    `edit` is None for a large document, a conflict, or an edit that may already be applied. In these cases, only the
    command can apply the pending edit.
    """

    turn_id: str
    title: str
    edit: WorkspaceEdit | None = None


class PendingEdits:
    """The pending edits for a connection. At most the fifty newest edits are kept."""

    def __init__(self, state: ConnectionState) -> None:
        self._state = state
        self._pending: OrderedDict[str, PendingEdit] = OrderedDict()
        self._offer_cache: dict[str, tuple[Document, int, OfferedEdit | None]] = {}
        self._applied_ids: set[str] = set()
        # The additional documents in which each turn's edit is offered, such as the document in which it was requested.
        self._related_uris: dict[str, tuple[str, ...]] = BoundedDict(_MAX_PENDING)

    def get(self, turn_id: str | None) -> PendingEdit | None:
        """Return the pending edit of a turn, by default the newest pending edit."""
        if turn_id is None:
            return next(reversed(self._pending.values()), None)
        return self._pending.get(turn_id)

    def keep(self, pending: PendingEdit) -> None:
        about = self._related_uris.get(pending.turn_id, ())
        self.drop(pending.turn_id)
        self._pending[pending.turn_id] = pending
        self.offer_in(pending.turn_id, *about)
        while len(self._pending) > _MAX_PENDING:
            self.drop(next(iter(self._pending)))

    def drop(self, turn_id: str) -> None:
        self._pending.pop(turn_id, None)
        self._offer_cache.pop(turn_id, None)
        self._applied_ids.discard(turn_id)
        self._related_uris.pop(turn_id, None)

    def offer_in(self, turn_id: str, *uris: str) -> None:
        """Offer a turn's pending edit in additional documents.

        Examples are the document in which the turn was requested and the document that shows the diff.
        """
        self._related_uris[turn_id] = (*self._related_uris.get(turn_id, ()), *uris)

    def forget(self, session_id: str) -> None:
        for pending in [pending for pending in self._pending.values() if pending.session_id == session_id]:
            self.drop(pending.turn_id)

    def describe_pending(self, session_id: str) -> str:
        """Describe a session's pending edits to the model, or return an empty string if there are none."""
        waiting = [
            pending for pending in self._pending.values() if pending.session_id == session_id and pending.undo is None
        ]
        files = [describe_change(file) for pending in waiting for file in pending.files]
        more = f" and {len(files) - _MAX_DESCRIBED} more files" if len(files) > _MAX_DESCRIBED else ""
        return ", ".join(files[:_MAX_DESCRIBED]) + more

    def can_be_applied_elsewhere(self) -> bool:
        """Return whether the client may apply an edit without a request from the server."""
        if not self._state.client.features.apply_edit:
            return bool(self._pending)
        return any(pending.state == "incomplete" for pending in self._pending.values())

    def list_applied(self) -> list[PendingEdit]:
        """Return the edits that are still stored as pending, although the documents already show them."""
        return [self._pending[turn_id] for turn_id in self._applied_ids]

    def find_offers(self, uri: str) -> list[OfferedEdit]:
        """Return the offers that change an open document, newest first. This method uses only data in memory."""
        document = self._state.documents.get(uri)
        if document is None:
            return []
        offers = [self._find_offer(pending, document) for pending in reversed(self._pending.values())]
        return [offer for offer in offers if offer is not None]

    def find_new_file_offers(self, uri: str) -> list[OfferedEdit]:
        """Return the offers that create a file, newest first. The file is not open, so it has no other offers."""
        key = self._state.file_keys.find(uri)
        offers = []
        for pending in reversed(self._pending.values()):
            files = [
                file for file in pending.files if file.before is None and self._state.file_keys.find(file.uri) == key
            ]
            current = {file.uri: FileState(None) for file in files}
            plan = plan_merge(files, current, self._state.client.features.file_operations)
            if plan.mergeable:
                offer = OfferedEdit(pending.turn_id, pending.turn_name or pending.title)
                offers.append(self._add_edit(offer, plan, pending.title))
        return offers

    def _find_offer(self, pending: PendingEdit, document: Document) -> OfferedEdit | None:
        """Return the offer for a document. The offer is cached, because editors ask with each cursor move.

        A reopened document is treated as a different document, even if it has the same version.
        """
        cached = self._offer_cache.get(pending.turn_id)
        if cached is None or cached[0] is not document or cached[1] != document.version:
            cached = (document, document.version, self._build_offer(pending, document))
            self._offer_cache[pending.turn_id] = cached
        return cached[2]

    def _build_offer(self, pending: PendingEdit, document: Document) -> OfferedEdit | None:
        find_key = self._state.file_keys.find
        pending = pending.move(
            {file.uri: document.uri for file in pending.files if find_key(file.uri) == find_key(document.uri)}
        )
        # All chats have the same title, so the list shows the prompt instead of the title if there is one.
        offer = OfferedEdit(pending.turn_id, pending.turn_name or pending.title)
        files = [file for file in pending.files if file.uri == document.uri]
        can = self._state.client.features
        if not files:
            is_related = document.uri in self._related_uris.get(pending.turn_id, ())
            return offer if is_related and can.apply_edit else None
        if document.line_count > _MAX_OFFER_LINES and can.apply_edit:
            return offer
        current = {document.uri: FileState(document.text, document.version, document.is_desynced)}
        current |= {file.new_uri: FileState(None) for file in files if file.new_uri is not None}
        plan = plan_merge(files, current, can.file_operations, conflict_texts=pending.conflict_texts)
        if not plan.mergeable:
            if plan.rejected[0].status != "applied":
                return offer
            if not can.apply_edit or pending.state == "incomplete":
                self._applied_ids.add(pending.turn_id)
            return None
        self._applied_ids.discard(pending.turn_id)
        if pending.state == "unknown" and can.apply_edit:
            return offer
        return self._add_edit(offer, plan, pending.title)

    def _add_edit(self, offer: OfferedEdit, plan: MergePlan, title: str) -> OfferedEdit:
        encoding, can = self._state.documents.encoding, self._state.client.features
        edit = build_workspace_edit(plan.mergeable, can, encoding=encoding, title=title, review="never")
        return replace(offer, edit=edit)
