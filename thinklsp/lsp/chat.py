"""Chat documents in the editor: made, answered and shown by edits alone, as any other change of the user's files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thinklsp.core.edits import TextEdit
from thinklsp.core.errors import PathRefused, SessionError, TurnRefused
from thinklsp.core.events import TurnFinished
from thinklsp.engine import ChatTask, Engine, Reference, Turn, TurnSpec
from thinklsp.lsp import chat_documents
from thinklsp.lsp.chat_documents import NO_TEXT, Answer, new_document, with_answer, with_exchange
from thinklsp.lsp.convert import Lines
from thinklsp.lsp.edits import CREATE_OPTIONS
from thinklsp.lsp.snapshots import Snapshots
from thinklsp.lsp.state import State
from thinklsp.workspace.relpath import RelPath
from thinklsp.workspace.uri import path_to_uri, uri_to_path
from thinklsp.workspace.view import WorkspaceView

_TRIES = 20
_RACES = 5
_MESSAGE = 4_000


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
        self._making = asyncio.Lock()
        # Documents that could not be told the session which was begun for them.
        self._unwritten: dict[str, str] = {}
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

    async def spec_of(self, sent: Sent, view: WorkspaceView) -> tuple[TurnSpec, str | None]:
        """The turn that a document asks for, and a notice when its session could not be continued."""
        session_id, notice = sent.chat.session_id, None
        if session_id is not None and not await self._is_known(session_id):
            session_id = None
            notice = "The session of this document is not known here, so a new one was begun."
        begun = self._unwritten.get(sent.uri)
        if session_id is None and begun is not None and await self._is_known(begun):
            session_id, notice = begun, None
        references = tuple(Reference(m.path, m.lines) for m in chat_documents.mentions(sent.chat.prompt))
        task = ChatTask(sent.chat.prompt, tuple(r for r in references if _exists(view, r)))
        return TurnSpec("chat", task, view, self._snapshots.key, session_id), notice

    async def answer(self, sent: Sent, turn: Turn, finished: TurnFinished, notices: tuple[str, ...] = ()) -> None:
        """Puts the answer below everything that stands in the document now; elsewhere when that cannot be edited."""
        session_id, answer = turn.session.id, Answer(finished.text, notices)
        if await self._change(sent.uri, lambda text: with_answer(text, session_id, answer)):
            self._by_session[session_id] = sent.uri
            self._unwritten.pop(sent.uri, None)
            return
        self._unwritten[sent.uri] = session_id
        await self._show(session_id, sent.chat.prompt, answer)

    async def deliver(self, turn: Turn, finished: TurnFinished, prompt: str, notices: tuple[str, ...] = ()) -> None:
        """The answer of a turn whose caller shows no text: into the session's document, made if need be, and shown."""
        session_id, answer = turn.session.id, Answer(finished.text, notices)
        if not answer:
            return
        known = self._by_session.get(session_id)
        if known is None or not await self._change(known, lambda text: with_exchange(text, session_id, prompt, answer)):
            await self._show(session_id, prompt, answer)
        else:
            await self._state.client.show_document(known, take_focus=False)

    async def open_blank(self, prompt: str) -> bool:
        """A document that waits for the user's text."""
        return await self._make(None, chat_documents.blank_document(prompt))

    async def _show(self, session_id: str, prompt: str, answer: Answer) -> None:
        """In a document of its own, or as a message where none can be made or there are only notices to tell."""
        text = answer.text.strip()
        if text and await self._make(session_id, new_document(session_id, prompt, answer)):
            return
        whole = "\n\n".join(filter(None, (text, "\n".join(answer.notices)))) or NO_TEXT
        # A long answer comes in several messages: there is no other place where it could be read.
        for start in range(0, len(whole), _MESSAGE):
            self._state.client.show_message("info", whole[start : start + _MESSAGE])

    async def _make(self, session_id: str | None, text: str) -> bool:
        """False where the client can create no file or there is no folder to create it in."""
        # One after the other: two that look for a free name at once would find the same.
        async with self._making:
            return await self._make_alone(session_id, text)

    async def _make_alone(self, session_id: str | None, text: str) -> bool:
        can = self._state.client.can
        place = self._free_place(session_id or "new")
        if place is None or not (can.apply_edit and can.document_changes and "create" in can.resource_operations):
            return False
        uri, ignore_uri = place
        files = {uri: text} if ignore_uri is None else {ignore_uri: chat_documents.IGNORE, uri: text}
        # In two edits: within one, lsp-mode of Emacs writes the text before it has made folder and file.
        for changes in ([_creation(name) for name in files], [_first_text(name, files[name]) for name in files]):
            edit = {"documentChanges": changes}
            reply = await self._state.client.apply_edit("thinklsp: chat document", edit)
            if not reply.applied:
                return False
        self._latest = uri
        if session_id is not None:
            self._by_session[session_id] = uri
        # An answer comes when it is ready: the cursor stays where the user may be typing.
        await self._state.client.show_document(uri, take_focus=session_id is None)
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

    async def _change(self, uri: str, changes: Callable[[str], tuple[TextEdit, ...]]) -> bool:
        """Edits an open document; tried again when the user typed at that moment. False where it cannot be done."""
        for _ in range(_RACES):
            document = self._state.documents.get(uri)
            if document is None or document.desynced or not self._state.client.can.apply_edit:
                return False
            now, version = document.text, document.version
            lines = Lines(now, self._state.documents.encoding)
            edits = [{"range": lines.range(e.start, e.end), "newText": e.new_text} for e in changes(now)]
            reply = await self._state.client.apply_edit("thinklsp: answer", self._edit(uri, version, edits))
            if reply.applied:
                return True
            if document.version == version:
                return False
        return False

    async def _is_known(self, session_id: str) -> bool:
        """`last` names no session here: a document that came with a repository must not find the user's newest one."""
        try:
            await self._engine.session(session_id, self._snapshots.key)
        except SessionError:
            return False
        return session_id != "last"

    def _edit(self, uri: str, version: int, edits: list[dict[str, Any]]) -> dict[str, Any]:
        if not self._state.client.can.document_changes:
            return {"changes": {uri: edits}}
        return {"documentChanges": [{"textDocument": {"uri": uri, "version": version}, "edits": edits}]}


def _creation(uri: str) -> dict[str, Any]:
    return {"kind": "create", "uri": uri, "options": dict(CREATE_OPTIONS)}


def _first_text(uri: str, text: str) -> dict[str, Any]:
    start = {"line": 0, "character": 0}
    edits = [{"range": {"start": start, "end": start}, "newText": text}]
    return {"textDocument": {"uri": uri, "version": None}, "edits": edits}


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
