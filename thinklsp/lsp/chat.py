"""Chat documents in the editor: made, answered and shown by edits alone, as any other change of the user's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thinklsp.core.errors import PathRefused, SessionError, TurnRefused
from thinklsp.core.events import TurnFinished
from thinklsp.engine import ChatTask, Engine, Reference, Turn, TurnSpec
from thinklsp.lsp import chat_documents
from thinklsp.lsp.convert import Lines
from thinklsp.lsp.snapshots import Snapshots
from thinklsp.lsp.state import State
from thinklsp.workspace.relpath import RelPath
from thinklsp.workspace.uri import path_to_uri, uri_to_path
from thinklsp.workspace.view import WorkspaceView

_TRIES = 20


@dataclass(frozen=True, slots=True)
class Sent:
    """What the user sent from a chat document."""

    uri: str
    chat: chat_documents.Chat


class ChatDocuments:
    """Remembers which document belongs to which session, and the one that was used last."""

    def __init__(self, state: State, snapshots: Snapshots, engine: Engine) -> None:
        self._state = state
        self._snapshots = snapshots
        self._engine = engine
        self.suffix = ".chat.md"
        self._by_session: dict[str, str] = {}
        self._latest: str | None = None

    def sent_from(self, uri: str | None) -> Sent:
        """Raises TurnRefused when there is no such document or nothing in it to send."""
        uri = uri or self._latest
        document = None if uri is None else self._state.documents.get(uri)
        if uri is None or document is None:
            raise TurnRefused("There is no open chat document to send. Open one, or name it by uri.")
        chat = chat_documents.parse(document.text)
        if not chat.prompt:
            raise TurnRefused("There is nothing to send: write below the last ## You.")
        self._latest = uri
        return Sent(uri, chat)

    def spec_of(self, sent: Sent, view: WorkspaceView) -> tuple[TurnSpec, str | None]:
        """The turn that a document asks for, and a notice when its session could not be continued."""
        session_id, notice = sent.chat.session_id, None
        if session_id is not None:
            try:
                self._engine.session(session_id, self._snapshots.key)
            except SessionError:
                session_id = None
                notice = "The session of this document is not known here, so a new one was begun."
        references = tuple(Reference(m.path, m.lines) for m in chat_documents.mentions(sent.chat.prompt))
        task = ChatTask(sent.chat.prompt, tuple(r for r in references if _exists(view, r)))
        return TurnSpec("chat", task, view, self._snapshots.key, session_id), notice

    async def answer(self, sent: Sent, turn: Turn, finished: TurnFinished) -> None:
        """Puts the answer below everything that stands in the document now."""
        self._by_session[turn.session.id] = sent.uri
        await self._append(sent.uri, turn.session.id, finished.text)

    async def deliver(self, turn: Turn, finished: TurnFinished, prompt: str) -> None:
        """The answer of a turn whose caller shows no text: into the session's document, made if need be, and shown."""
        if not finished.text.strip():
            return
        session_id = turn.session.id
        known = self._by_session.get(session_id)
        if known is not None and self._state.documents.get(known) is not None:
            section = f"{prompt}\n{chat_documents.answer_section(finished.text)}"
            made = await self._append(known, session_id, section, whole=True)
        else:
            made = await self._make(session_id, chat_documents.new_document(session_id, prompt, finished.text))
        if not made:
            self._state.client.show_message("info", finished.text[:4_000])

    async def open_blank(self, prompt: str) -> bool:
        """A document that waits for the user's text."""
        return await self._make(None, chat_documents.blank_document(prompt))

    async def _make(self, session_id: str | None, text: str) -> bool:
        """False where the client can create no file or there is no folder to create it in."""
        can = self._state.client.can
        place = self._free_place(session_id or "new")
        if place is None or not (can.apply_edit and can.document_changes and "create" in can.resource_operations):
            return False
        uri, ignore_uri = place
        changes: list[dict[str, Any]] = []
        if ignore_uri is not None:
            changes += _creation(ignore_uri, chat_documents.IGNORE)
        reply = await self._state.client.apply_edit(
            "thinklsp: chat document", {"documentChanges": [*changes, *_creation(uri, text)]}
        )
        if not reply.applied:
            return False
        self._latest = uri
        if session_id is not None:
            self._by_session[session_id] = uri
        await self._state.client.show_document(uri)
        return True

    def _free_place(self, name: str) -> tuple[str, str | None] | None:
        """URI of a new document in the first folder, and of the ignore file where that is missing."""
        folder = next(iter(self._snapshots.view().folders), None)
        if folder is None:
            return None
        root, parts = folder.root, tuple(chat_documents.FOLDER.split("/"))
        suffix = self.suffix

        def taken(file: str) -> bool:
            uri = path_to_uri("/".join((root.written, *parts, file)))
            path = RelPath.of((*parts, file), file)
            return self._state.documents.get(uri) is not None or root.stat(path) is not None

        base = chat_documents.file_name(name, "")
        names = [f"{base}{suffix}", *(f"{base}-{number}{suffix}" for number in range(2, _TRIES))]
        try:
            file = next((file for file in names if not taken(file)), None)
            ignore = None if taken(".gitignore") else path_to_uri("/".join((root.written, *parts, ".gitignore")))
        except PathRefused:
            return None
        return None if file is None else (path_to_uri("/".join((root.written, *parts, file))), ignore)

    async def _append(self, uri: str, session_id: str, text: str, *, whole: bool = False) -> bool:
        """Adds an answer at the end; tried once more when the user typed at that moment."""
        section = text if whole else chat_documents.answer_section(text)
        for _ in range(2):
            document = self._state.documents.get(uri)
            if document is None:
                break
            now, version = document.text, document.version
            lines = Lines(now, self._state.documents.encoding)
            seam = "" if now.endswith("\n") or not now else "\n"
            edits = [{"range": lines.range(len(now), len(now)), "newText": seam + section}]
            chat = chat_documents.parse(now)
            if chat.session_id != session_id and now.startswith("<!-- thinklsp session:"):
                first = now.find("\n") if "\n" in now else len(now)
                line = f"<!-- thinklsp session: {session_id} -->"
                edits.insert(0, {"range": lines.range(0, first), "newText": line})
            reply = await self._state.client.apply_edit("thinklsp: answer", self._edit(uri, version, edits))
            if reply.applied:
                return True
            if document.version == version:
                break
        return False

    def _edit(self, uri: str, version: int, edits: list[dict[str, Any]]) -> dict[str, Any]:
        if not self._state.client.can.document_changes:
            return {"changes": {uri: edits}}
        return {"documentChanges": [{"textDocument": {"uri": uri, "version": version}, "edits": edits}]}


def _creation(uri: str, text: str) -> list[dict[str, Any]]:
    start = {"line": 0, "character": 0}
    return [
        {"kind": "create", "uri": uri, "options": {"ignoreIfExists": True}},
        {
            "textDocument": {"uri": uri, "version": None},
            "edits": [{"range": {"start": start, "end": start}, "newText": text}],
        },
    ]


def _exists(view: WorkspaceView, reference: Reference) -> bool:
    """A word after an @ that names no file is just a word."""
    try:
        return view.kind(view.resolve(reference.uri)) == "file"
    except PathRefused:
        return False


def mention(uri: str, view: WorkspaceView, lines: tuple[int, int] | None) -> str:
    """`@path:L1-L2` for a document, or its file name where it has no path in a folder."""
    try:
        name = view.resolve(uri).shown
    except PathRefused:
        name = uri_to_path(uri).rsplit("/", 1)[-1] if uri.startswith("file:") else uri
    return f"@{name}" if lines is None else f"@{name}:{lines[0]}-{lines[1]}"
