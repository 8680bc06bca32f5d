"""Chat documents in the editor: answered and shown by edits alone, one for each answer.

Which document belongs to which session is known from its first line, and from here until that line has been written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from thinklsp.core.edits import TextEdit
from thinklsp.core.errors import SessionError, TurnRefused
from thinklsp.lsp.chats import chat_documents
from thinklsp.lsp.chats.chat_documents import (
    NO_TEXT,
    Answer,
    inert_text,
    make_answer_inert,
    new_document,
    with_answer,
    with_exchange,
)
from thinklsp.lsp.chats.chat_outline import Chat, parse, prompt_section, session_named
from thinklsp.lsp.chats.sessions import Sessions
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.made_files import MadeFiles
from thinklsp.lsp.protocol.convert import Lines
from thinklsp.tools.inert import make_inert

_RACES = 5
# Seconds until an editor that has made an edit has told of it.
_LATEST_CHANGE = 5.0
_WAITS = "This document waits for an answer already."
_WRITE = "write below the last ## You"
_MESSAGE = 4_000


@dataclass(slots=True)
class Exchange:
    """One prompt of a document, from its being sent until the document has its answer.

    `session_id`: the session that was begun or goes on, as soon as that is known. `told` is what slash commands have
    said so far, `left` a sentence on those that were not run, `rest` what of the prompt is still to be sent after them,
    `problem` why that was not done. `writing`: its answer is on its way.
    """

    uri: str
    document: Document
    text: str
    version: int
    chat: Chat
    session_id: str | None = None
    told: str = ""
    left: str = ""
    rest: str = ""
    problem: str = ""
    writing: asyncio.Task[None] | None = None


Edits = Callable[[Document, str], tuple[TextEdit, ...]]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A session that was begun for a document whose first line still says `named`. Another line counts again."""

    session_id: str
    named: str | None


class ChatDocuments:
    """Remembers which document belongs to which session, which one was used last, and which wait for an answer."""

    def __init__(self, state: State, snapshots: Snapshots, sessions: Sessions) -> None:
        self._state = state
        self._sessions = sessions
        self._files = MadeFiles(state, snapshots, chat_documents.FOLDER, "chat document")
        self.suffix = ".chat.md"
        self._by_session: dict[str, str] = {}
        self._begun: dict[str, _Begun] = {}
        self._sending: set[str] = set()
        self._leaving: dict[str, asyncio.Task[None]] = {}

    def is_chat(self, uri: str) -> bool:
        # Editors escape what they like: what is meant counts.
        return unquote(uri.rpartition("/")[2]).endswith(self.suffix)

    async def settled(self, uri: str | None) -> None:
        """Waits until the document knows the end of the turn before."""
        if (leaving := self._leaving.get(uri or self._latest() or "")) is not None:
            await asyncio.wait([leaving])

    def take(self, uri: str | None) -> Exchange:
        """What a document has to send; without a name, the one that the user was in last. `leave` must follow, whatever
        happens.

        Raises TurnRefused when there is no such document or nothing in it to send, SessionError while it waits for an
        answer.
        """
        uri = uri or self._latest()
        document = None if uri is None else self._state.documents.get(uri)
        if uri is None or document is None:
            raise TurnRefused("There is no open chat document to send. Open one, or name it by uri.")
        if not self.is_chat(uri):
            raise TurnRefused(f"This document is no chat document: their names end in {self.suffix}.")
        chat = parse(document.text)
        if not chat.prompt:
            raise TurnRefused(f"There is nothing to send: {_WRITE}.")
        if uri in self._sending:
            raise SessionError(f"{_WAITS} Wait for it or stop the turn first.")
        self._state.documents.use(document)
        self._sending.add(uri)
        return Exchange(uri, document, document.text, document.version, chat)

    def _latest(self) -> str | None:
        chats = [document for document in self._state.documents.all() if self.is_chat(document.uri)]
        return max(chats, key=lambda document: document.used).uri if chats else None

    def not_sent(self, document: Document) -> str | None:
        """Why there is nothing to send now; None where there is. From memory."""
        if document.uri in self._sending:
            return _WAITS
        section = prompt_section(document.text)
        is_blank = not any(line.strip() for line in document.lines[section.begin : section.end])
        return f"{_WRITE[:1].upper()}{_WRITE[1:]}." if is_blank else None

    async def session_of(self, exchange: Exchange) -> tuple[str | None, str | None]:
        """The session that the document continues, None for a new one; and a notice when the one that it names could
        not be continued."""
        named = exchange.chat.session_id
        for session_id in (self._begun_for(exchange.uri, named), named):
            if session_id is not None and await self._sessions.find(session_id) is not None:
                return session_id, None
        notice = "The session of this document is not known here, so a new one was begun."
        return None, None if named is None else notice

    def session_in_memory(self, document: Document) -> str | None:
        """What `session_of` would find, without asking anybody."""
        named = session_named(document.lines)
        return self._begun_for(document.uri, named) or (named if named and self._sessions.is_known(named) else None)

    def _begun_for(self, uri: str, named: str | None) -> str | None:
        begun = self._begun.get(uri)
        return None if begun is None or begun.named != named else begun.session_id

    def begun(self, exchange: Exchange, session_id: str) -> None:
        """From now on the document belongs to the session, although its first line may not say so yet."""
        exchange.session_id = session_id
        self._begun[exchange.uri] = _Begun(session_id, exchange.chat.session_id)

    def answer(self, exchange: Exchange, session_id: str, answer: Answer) -> asyncio.Task[None]:
        """Begins to put the answer behind the prompt; elsewhere when the document cannot be edited."""
        exchange.writing = self._state.spawn(self._answer(exchange, session_id, answer))
        return exchange.writing

    async def _answer(self, exchange: Exchange, session_id: str, answer: Answer) -> None:
        answer = await make_answer_inert(answer)

        def edits(document: Document, text: str) -> tuple[TextEdit, ...]:
            return with_answer(text, session_id, answer, self._end_of_prompt(exchange, document, text))

        if not self._state.stopped and not await self._write(exchange, session_id, "answer", edits):
            await self.deliver(session_id, exchange.chat.prompt, answer, but_not=exchange.uri)

    def leave(self, exchange: Exchange) -> None:
        """The end of it, however it came. A document without an answer is told at least what happened so far: the
        session that was begun for it, and what slash commands have said and done."""
        session_id = exchange.session_id
        told = exchange.writing is not None and exchange.writing.done()
        if session_id is None or told or self._state.stopped:
            self._sending.discard(exchange.uri)
            return
        self._leaving[exchange.uri] = self._state.spawn(self._leave(exchange, session_id))

    async def _leave(self, exchange: Exchange, session_id: str) -> None:
        try:
            if exchange.writing is None and exchange.told:
                below = "What was not sent stands below." if exchange.rest else ""
                notices = tuple(filter(None, (exchange.problem, exchange.left, below)))
                self.answer(exchange, session_id, Answer(exchange.told, notices, exchange.rest))
            if exchange.writing is not None:
                await asyncio.wait([exchange.writing])
            else:
                await self._write(
                    exchange, session_id, "session", lambda _, text: chat_documents.with_session(text, session_id)
                )
        finally:
            self._sending.discard(exchange.uri)
            self._leaving.pop(exchange.uri, None)

    async def _write(self, exchange: Exchange, session_id: str, what: str, edits: Edits) -> bool:
        """Edits the document that was sent, which names its session then. False where that cannot be done."""
        uri = self._now_at(exchange, session_id)
        done = await self._change(uri, what, edits)
        if not done and (moved := self._now_at(exchange, session_id)) != uri:
            # It was saved under another name at this very moment.
            uri, done = moved, await self._change(moved, what, edits)
        if done:
            self._by_session[session_id] = uri
            self._begun.pop(exchange.uri, None)
        return done

    async def deliver(self, session_id: str, prompt: str, answer: Answer, *, but_not: str | None = None) -> None:
        """The answer of a turn whose caller shows no text: into the session's document, made if need be, and shown."""
        if not answer or self._state.stopped:
            return
        answer = await make_answer_inert(answer)
        prompt = await make_inert(prompt, inert_text)
        known = self._by_session.get(session_id)

        def edits(_: Document, text: str) -> tuple[TextEdit, ...]:
            return with_exchange(text, session_id, prompt, answer)

        if known is None or known == but_not or not await self._change(known, "answer", edits):
            await self._show(session_id, prompt, answer)
        else:
            await self._files.show(known, take_focus=False)

    async def open_blank(self, prompt: str) -> bool:
        """A document that waits for the user's text."""
        uri = await self._files.make("new", self.suffix, chat_documents.blank_document(prompt))
        if uri is not None:
            await self._files.show(uri, take_focus=True)
        return uri is not None

    async def _show(self, session_id: str, prompt: str, answer: Answer) -> None:
        """In a document of its own, or as a message where none can be made or there are only notices to tell."""
        text = answer.text.strip()
        uri = None
        if text:
            uri = await self._files.make(session_id[:12], self.suffix, new_document(session_id, prompt, answer))
        if uri is not None:
            self._by_session[session_id] = uri
            # An answer comes when it is ready: the cursor stays where the user may be typing.
            await self._files.show(uri, take_focus=False)
            return
        whole = "\n\n".join(filter(None, (text, "\n".join(answer.notices)))) or NO_TEXT
        # A long answer comes in several messages: there is no other place where it could be read.
        for start in range(0, len(whole), _MESSAGE):
            self._state.client.show_message("info", whole[start : start + _MESSAGE])

    def _now_at(self, exchange: Exchange, session_id: str) -> str:
        """The URI of the document, which may have been saved under another name since it was sent."""
        if self._state.documents.get(exchange.uri) is not None:
            return exchange.uri
        for document in self._state.documents.all():
            if self.is_chat(document.uri) and document.uri not in self._sending:
                named = session_named(document.lines)
                if named == session_id or (named is None and document.text == exchange.text):
                    return document.uri
        return exchange.uri

    def _end_of_prompt(self, exchange: Exchange, document: Document, text: str) -> int | None:
        """Where the prompt that was sent ends in the text of now. None where that cannot be told."""
        end = exchange.chat.end
        if end is None or text.startswith(exchange.text[:end]):
            return end
        moved = None
        if document is exchange.document:
            place = Lines(exchange.text, self._state.documents.encoding).position(end)
            moved = document.moved((place["line"], place["character"]), exchange.version)
        if moved is not None:
            return Lines(text, self._state.documents.encoding).offset(*moved)
        # Some editors send whole lines or the whole text for every change.
        return chat_documents.end_of_same_line(exchange.text, end, text)

    async def _change(self, uri: str, what: str, changes: Edits) -> bool:
        """Edits an open document, when nobody types there; tried again when somebody did at that moment. False where
        it cannot be done."""
        for _ in range(_RACES):
            await self._state.documents.quiet([uri])
            document = self._state.documents.get(uri)
            if document is None or document.desynced or not self._state.client.can.apply_edit:
                return False
            now, version = document.text, document.version
            lines = Lines(now, self._state.documents.encoding)
            edits = [{"range": lines.range(e.start, e.end), "newText": e.new_text} for e in changes(document, now)]
            if not edits:
                return True
            used = document.used
            reply = await self._state.client.apply_edit(f"thinklsp: {what}", self._edit(uri, version, edits))
            if reply.applied:
                self._state.spawn(self._not_used(document, version, used))
                return True
            if document.version == version:
                return False
        return False

    async def _not_used(self, document: Document, version: int, used: int) -> None:
        """What has changed the document was not the user. Some editors tell of it only after they have answered."""
        touched = self._state.documents.touched
        with suppress(TimeoutError):
            async with asyncio.timeout(_LATEST_CHANGE):
                while document.version == version:
                    touched.clear()
                    await touched.wait()
                document.used = used

    def _edit(self, uri: str, version: int, edits: list[dict[str, Any]]) -> dict[str, Any]:
        if not self._state.client.can.document_changes:
            return {"changes": {uri: edits}}
        return {"documentChanges": [{"textDocument": {"uri": uri, "version": version}, "edits": edits}]}
