"""The editor's chat documents. The server writes each answer to its document with a single workspace edit.

The first line of a document names its session. A new session is kept in memory until the server has written that line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import unquote

from lsprotocol import types

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.edits import TextEdit
from thinklsp.core.errors import SessionError, TurnRefused
from thinklsp.engine.workspace_sessions import WorkspaceSessions
from thinklsp.lsp.chats import chat_documents
from thinklsp.lsp.chats.chat_documents import (
    NO_TEXT,
    ChatAnswer,
    build_blank_document,
    build_document,
    find_same_line_end,
    plan_answer_edits,
    plan_exchange_edits,
    plan_session_edit,
    prepare_in_background,
    prepare_text,
    sanitize_answer,
)
from thinklsp.lsp.chats.chat_outline import ParsedChat, find_prompt_section, find_session_id, parse_chat
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.workspace_edits import GeneratedDocuments, build_document_edit
from thinklsp.lsp.protocol.positions import PositionMap
from thinklsp.workspace.documents import is_version

_MAX_ATTEMPTS, _MAX_SESSIONS = 5, 1_000
_BUSY = "This document is already waiting for an answer."
_WRITE_HINT = "write your prompt below the last ## You"


@dataclass(slots=True)
class PendingPrompt:
    """A sent prompt whose answer has not been written to its chat document yet.

    `session_id` is None until the session is determined. `command_output` is the output of the slash commands so far,
    and `skipped_notice` names the commands that did not run. `remaining_prompt` is the text to send after the commands.
    `problem` is the error message if that text could not be sent. `answer_task` writes the answer.
    """

    uri: str
    document: Document
    text: str
    version: int
    chat: ParsedChat
    session_id: str | None = None
    command_output: str = ""
    skipped_notice: str = ""
    remaining_prompt: str = ""
    problem: str = ""
    answer_task: asyncio.Task[None] | None = None


PlanEdits = Callable[[Document, str], Awaitable[tuple[TextEdit, ...]]]
"""Plans the edits of a document with the given text. What reads the whole text runs in a thread."""


class ChatDocuments:
    """The open chat documents, their sessions, their pending prompts and the most recently used document."""

    def __init__(self, state: ConnectionState, snapshots: Snapshots, sessions: WorkspaceSessions) -> None:
        self._state = state
        self._sessions = sessions
        self._files = GeneratedDocuments(state, snapshots, chat_documents.FOLDER, "chat document")
        self.suffix = ".chat.md"
        self._uri_by_session: dict[str, str] = BoundedDict(_MAX_SESSIONS)
        # The sessions of documents whose first line names no session or a different one, with the named session. If the
        # user changes the first line, the document uses the session named in that line again.
        self._started_sessions: dict[str, tuple[str, str | None]] = BoundedDict(_MAX_SESSIONS)
        self._busy_uris: set[str] = set()
        self._finishing_tasks: dict[str, asyncio.Task[None]] = {}

    def is_chat(self, uri: str) -> bool:
        # Editors escape different characters in a URI, so compare the unescaped name.
        return unquote(uri.rpartition("/")[2]).endswith(self.suffix) and not is_version(uri)

    async def wait_for_previous(self, uri: str | None) -> None:
        """Wait until the result of the previous turn has been written to the document."""
        if (leaving := self._finishing_tasks.get(uri or self._find_latest() or "")) is not None:
            await asyncio.wait([leaving])

    def begin(self, uri: str | None) -> PendingPrompt:
        """Return a document's prompt and mark the document as busy. The default is the most recently used document.

        The caller must always call `finish`. Raises TurnRefused if there is no such document or no prompt, and
        SessionError if the document is already waiting for an answer.
        """
        uri = uri or self._find_latest()
        document = None if uri is None else self._state.documents.get(uri)
        if uri is None or document is None:
            raise TurnRefused("There is no open chat document to send. Open a chat document, or give its uri.")
        if not self.is_chat(uri):
            raise TurnRefused(f"This is not a chat document: the name of a chat document ends in {self.suffix}.")
        chat = parse_chat(document.text)
        if not chat.prompt:
            raise TurnRefused(f"There is nothing to send: {_WRITE_HINT}.")
        if uri in self._busy_uris:
            raise SessionError(f"{_BUSY} Wait for it or stop the turn first.")
        self._state.documents.mark_used(document)
        self._busy_uris.add(uri)
        return PendingPrompt(uri, document, document.text, document.version, chat)

    def _find_latest(self) -> str | None:
        chats = [document for document in self._state.documents.list_documents() if self.is_chat(document.uri)]
        return max(chats, key=lambda document: document.last_use).uri if chats else None

    def explain_unsendable(self, document: Document) -> str | None:
        """Return the reason why the document's prompt cannot be sent now, or None. This method performs no I/O."""
        if document.uri in self._busy_uris:
            return _BUSY
        section = find_prompt_section(document.text)
        is_blank = not any(line.strip() for line in document.lines[section.begin : section.end])
        return f"{_WRITE_HINT[:1].upper()}{_WRITE_HINT[1:]}." if is_blank else None

    async def resolve_session(self, exchange: PendingPrompt) -> tuple[str | None, str | None]:
        """Return the session that the document continues, or None if a new session is needed.

        The second value is a notice if the session named in the document was not found.
        """
        named_session_id = exchange.chat.session_id
        for session_id in (self._find_started_session(exchange.uri, named_session_id), named_session_id):
            if session_id is not None and await self._sessions.find(session_id) is not None:
                return session_id, None
        notice = "The session of this document was not found, so a new session was started."
        return None, None if named_session_id is None else notice

    def find_known_session(self, document: Document) -> str | None:
        """Return the document's session from memory, without querying the store."""
        named_session_id = find_session_id(document.lines)
        return self._find_started_session(document.uri, named_session_id) or (
            named_session_id if named_session_id and self._sessions.is_known(named_session_id) else None
        )

    def _find_started_session(self, uri: str, named_session_id: str | None) -> str | None:
        session_id, named = self._started_sessions.get(uri, (None, None))
        return session_id if named == named_session_id else None

    def assign_session(self, exchange: PendingPrompt, session_id: str) -> None:
        """Assign a session to the document even if its first line does not name that session yet."""
        exchange.session_id = session_id
        self._started_sessions[exchange.uri] = session_id, exchange.chat.session_id

    def write_answer(self, exchange: PendingPrompt, session_id: str, answer: ChatAnswer) -> asyncio.Task[None]:
        """Start writing the answer below its prompt. If the document cannot be edited, use another document."""
        exchange.answer_task = self._state.spawn(self._write_answer(exchange, session_id, answer))
        return exchange.answer_task

    async def _write_answer(self, exchange: PendingPrompt, session_id: str, answer: ChatAnswer) -> None:
        shown = await sanitize_answer(answer)

        async def plan(_: Document, text: str) -> tuple[TextEdit, ...]:
            end = exchange.chat.end
            if end is not None and not text.startswith(exchange.text[:end]):
                # The user has changed the text above.
                end = await asyncio.to_thread(find_same_line_end, exchange.text, end, text)
            return await asyncio.to_thread(plan_answer_edits, text, session_id, shown, end)

        if not self._state.is_stopped and not await self._edit_sent_document(exchange, session_id, "answer", plan):
            await self.deliver(session_id, exchange.chat.prompt, answer, excluded_uri=exchange.uri)

    def finish(self, exchange: PendingPrompt) -> None:
        """Finish a prompt after its turn.

        If no answer has been written, write the session line and the command output.
        """
        session_id = exchange.session_id
        is_answered = exchange.answer_task is not None and exchange.answer_task.done()
        if session_id is None or is_answered or self._state.is_stopped:
            self._busy_uris.discard(exchange.uri)
            return
        self._finishing_tasks[exchange.uri] = self._state.spawn(self._finish(exchange, session_id))

    async def _finish(self, exchange: PendingPrompt, session_id: str) -> None:
        async def plan(_: Document, text: str) -> tuple[TextEdit, ...]:
            return plan_session_edit(text, session_id)

        try:
            if exchange.answer_task is None and exchange.command_output:
                below = "The unsent text is below." if exchange.remaining_prompt else ""
                notices = tuple(filter(None, (exchange.problem, exchange.skipped_notice, below)))
                self.write_answer(
                    exchange, session_id, ChatAnswer(exchange.command_output, notices, exchange.remaining_prompt)
                )
            if exchange.answer_task is not None:
                await asyncio.wait([exchange.answer_task])
            else:
                await self._edit_sent_document(exchange, session_id, "session", plan)
        finally:
            self._busy_uris.discard(exchange.uri)
            self._finishing_tasks.pop(exchange.uri, None)

    async def _edit_sent_document(self, exchange: PendingPrompt, session_id: str, label: str, plan: PlanEdits) -> bool:
        """Edit the document that contains the prompt, and write the session line. Return False if the edit failed."""
        uri = self._find_current_uri(exchange, session_id)
        is_written = await self._edit_document(uri, label, plan)
        if not is_written and (new_uri := self._find_current_uri(exchange, session_id)) != uri:
            # The user has saved the document under another name since sending the prompt.
            uri, is_written = new_uri, await self._edit_document(new_uri, label, plan)
        if is_written:
            self._uri_by_session[session_id] = uri
            self._started_sessions.pop(exchange.uri, None)
        return is_written

    async def deliver(
        self, session_id: str, prompt: str, answer: ChatAnswer, *, excluded_uri: str | None = None
    ) -> None:
        """Write an answer to the session's document and show the document. If the session has no document, create one.

        Use this method for commands whose caller does not show the answer.
        """
        if not answer or self._state.is_stopped:
            return
        shown = await sanitize_answer(answer)
        shown_prompt = await prepare_in_background(prompt)
        known_uri = self._uri_by_session.get(session_id)

        async def plan(_: Document, text: str) -> tuple[TextEdit, ...]:
            return await asyncio.to_thread(plan_exchange_edits, text, session_id, shown_prompt, shown)

        if known_uri is None or known_uri == excluded_uri or not await self._edit_document(known_uri, "answer", plan):
            await self._show_answer(session_id, shown_prompt, shown)
        else:
            await self._files.show(known_uri, take_focus=False)

    async def open_blank(self, prompt: str) -> None:
        """Open a new chat document with the given text as its prompt. Raise TurnRefused if it cannot be created."""
        draft = await asyncio.to_thread(prepare_text, prompt, is_draft=True)
        uri = await self._files.create("new", self.suffix, build_blank_document(draft))
        if uri is None:
            raise TurnRefused(f"The chat document was not created: {self._files.problem}")
        await self._files.show(uri, take_focus=True)

    async def _show_answer(self, session_id: str, prompt: str, answer: ChatAnswer) -> None:
        """Show an answer in a new document, or as a message if there are only notices or no document can be created."""
        uri = None
        if answer.text:
            uri = await self._files.create(session_id[:12], self.suffix, build_document(session_id, prompt, answer))
        if uri is not None:
            self._uri_by_session[session_id] = uri
            # The user may be typing elsewhere, so the new document must not take the focus.
            await self._files.show(uri, take_focus=False)
            return
        message = "\n\n".join(filter(None, (answer.text, "\n".join(answer.notices)))) or NO_TEXT
        self._state.client.show_text(message)

    def _find_current_uri(self, exchange: PendingPrompt, session_id: str) -> str:
        """Return the document's current URI, which changes when the user saves the document under another name."""
        if self._state.documents.get(exchange.uri) is not None:
            return exchange.uri
        for document in self._state.documents.list_documents():
            if self.is_chat(document.uri) and document.uri not in self._busy_uris:
                named_session_id = find_session_id(document.lines)
                if named_session_id == session_id or (named_session_id is None and document.text == exchange.text):
                    return document.uri
        return exchange.uri

    async def _edit_document(self, uri: str, label: str, plan: PlanEdits) -> bool:
        """Edit an open document while the user is not typing. Retry if the document changes before the edit.

        Returns False if the edit failed.
        """
        for _ in range(_MAX_ATTEMPTS):
            await self._state.documents.wait_until_idle([uri])
            document = self._state.documents.get(uri)
            if document is None or document.is_desynced or not self._state.client.features.apply_edit:
                return False
            now, version = document.text, document.version
            planned = await plan(document, now)
            if document.version != version:
                continue
            if not planned:
                return True
            lines = PositionMap(now, self._state.documents.encoding)
            edits = [types.TextEdit(lines.to_range(e.start, e.end), e.new_text) for e in planned]
            last_used = document.last_use
            reply = await self._state.client.apply_edit(
                f"thinklsp: {label}", self._build_workspace_edit(uri, version, edits)
            )
            if reply.applied:
                # An edit by the server is no use by the user. Some editors report the edit only after their answer.
                document.is_edit_expected = document.version == version
                document.last_use = last_used
                return True
            if document.version == version:
                return False
        return False

    def _build_workspace_edit(self, uri: str, version: int, edits: list[types.TextEdit]) -> types.WorkspaceEdit:
        if not self._state.client.features.document_changes:
            return types.WorkspaceEdit(changes={uri: edits})
        return types.WorkspaceEdit(document_changes=[build_document_edit(uri, version, edits)])
