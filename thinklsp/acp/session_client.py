"""The requests and updates to the client of a session, and the files as the client has them.

A client does not announce its open documents. The text of a file is therefore fetched when a tool names the file, and
only after the path check has passed. Without an answer, the file on disk is used.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from thinklsp.acp.initialization import AnnouncedFeatures
from thinklsp.acp.peer import RESOURCE_NOT_FOUND, AcpPeer
from thinklsp.acp.updates import Update
from thinklsp.core.errors import PathRefused
from thinklsp.engine.merge_plan import FileState
from thinklsp.engine.session_folders import SessionFolders, find_absolute_path
from thinklsp.jsonrpc.rpc_messages import ClientError, InvalidParams
from thinklsp.tools.tool import NoEditor
from thinklsp.workspace.uri import is_encodable
from thinklsp.workspace.view import DocumentSnapshot, Place, WorkspaceView

READ_SECONDS = 10.0
WRITE_SECONDS = 60.0
ANSWER_SECONDS = 600.0
_ROOM_SECONDS = 0.05
# The time limit of a read if the client has not answered the read before it.
_SILENT_READ_SECONDS = 1.0

OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
# The reads that wait for the client at the same time. Too many own requests would push out a waiting question.
_MAX_READS = 16


@dataclass(frozen=True, slots=True)
class Option:
    """An answer that the user can choose in a permission request."""

    id: str
    name: str
    kind: OptionKind


class PermissionCancelled(Exception):
    """The error raised if the client answers that the whole turn was cancelled."""


class NoAnswer(Exception):
    """The error raised if a question has no valid answer. The message is a clause with the reason."""


class SessionClient:
    """The client of one session."""

    def __init__(self, peer: AcpPeer, features: AnnouncedFeatures, session_id: str) -> None:
        self._peer = peer
        self.features = features
        self.session_id = session_id
        self._is_silent = False

    def send(self, update: Update) -> None:
        self._peer.notify("session/update", {"sessionId": self.session_id, "update": update})

    async def wait_for_room(self) -> None:
        """Let other work run, and wait until the client has read most of the updates."""
        await asyncio.sleep(0)
        while self._peer.is_client_slow:  # noqa: ASYNC110 - a thread writes, and it sets no event
            await asyncio.sleep(_ROOM_SECONDS)

    async def request_permission(self, call: Update, options: Sequence[Option]) -> Option:
        """Ask the user about the tool call of an update, and return the chosen option.

        Raises PermissionCancelled if the client has cancelled the turn, and NoAnswer without a valid answer.
        """
        rows = [{"optionId": option.id, "name": option.name, "kind": option.kind} for option in options]
        tool_call = {name: value for name, value in call.items() if name != "sessionUpdate"}
        params = {"sessionId": self.session_id, "toolCall": tool_call, "options": rows}
        outcome = _get(await self._ask("session/request_permission", params), "outcome")
        kind = _get(outcome, "outcome")
        if kind == "cancelled":
            raise PermissionCancelled
        for option in options:
            if kind == "selected" and option.id == _get(outcome, "optionId"):
                return option
        raise NoAnswer("the editor gave no valid answer")

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a question for the user and return the client's answer. Raises NoAnswer without an answer."""
        try:
            return await self._peer.request(method, params, ANSWER_SECONDS)
        except ClientError:
            raise NoAnswer("the editor could not ask you") from None
        except TimeoutError:
            raise NoAnswer("the question was not answered within ten minutes") from None

    async def ask_form(self, question: str, names: Sequence[str]) -> str | None:
        """Ask the user to choose one of the names in a form, and return the name, or None if the user declines.

        Raises NoAnswer if the client cannot show the form, or does not answer in time.
        """
        answer = await self._ask_field(question, {"type": "string", "title": "Answer", "enum": list(names)})
        return answer if answer in names else None

    async def ask_text(self, question: str) -> str | None:
        """Ask the user for a text in a form, and return the text, or None if the user declines. Raises NoAnswer."""
        return await self._ask_field(question, {"type": "string", "title": "Answer"})

    async def _ask_field(self, question: str, field: Mapping[str, Any]) -> str | None:
        schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
        params = {"mode": "form", "sessionId": self.session_id, "message": question, "requestedSchema": schema}
        reply = await self._ask("elicitation/create", params)
        answer = _get(_get(reply, "content"), "answer") if _get(reply, "action") == "accept" else None
        return answer if isinstance(answer, str) else None

    async def read_text(self, path: str) -> str | None:
        """Return the whole text of a file as the client has it, or None if the client says that there is no such file.

        Raises ClientError or TimeoutError if the client cannot read the file.
        """
        params = {"sessionId": self.session_id, "path": path}
        seconds = _SILENT_READ_SECONDS if self._is_silent else READ_SECONDS
        try:
            answer = await self._peer.request("fs/read_text_file", params, seconds)
        except TimeoutError:
            self._is_silent = True
            raise
        except ClientError as error:
            self._is_silent = False
            if error.code == RESOURCE_NOT_FOUND:
                return None
            raise
        self._is_silent = False
        text = _get(answer, "content")
        if not isinstance(text, str) or not is_encodable(text):
            raise ClientError("The client's answer to `fs/read_text_file` has no text.")
        return text

    async def write_text(self, path: str, text: str) -> None:
        """Ask the client to write a file. Raises ClientError or TimeoutError if it does not confirm that."""
        params = {"sessionId": self.session_id, "path": path, "content": text}
        await self._peer.request("fs/write_text_file", params, WRITE_SECONDS)


def _get(value: object, name: str) -> Any:
    """Return a member of a JSON value, or None if the value is not an object."""
    return value.get(name) if isinstance(value, Mapping) else None


def check_path(path: str, field: str) -> str:
    """Return an absolute path without dots. Raises InvalidParams for any other path."""
    if not path.startswith("/") or "\0" in path or not is_encodable(path):
        raise InvalidParams(f"The field `{field}` must be an absolute path.")
    return os.path.normpath(path)


def check_directory(path: str, field: str) -> str:
    """Return the path of an existing folder. Raises InvalidParams if it is not absolute or not a folder."""
    path = check_path(path, field)
    if not os.path.isdir(path):
        raise InvalidParams(f"The field `{field}` names a folder that does not exist.")
    return path


def _restore_end(text: str | None, on_disk: str | None) -> str | None:
    """Add the last line break, which avante.nvim leaves out, if the text is otherwise that on disk."""
    is_left_out = on_disk is not None and on_disk.replace("\r\n", "\n") == f"{text}\n"
    return f"{text}\n" if is_left_out else text


class ClientFiles(NoEditor):
    """The files of a session. A turn's tools use it as their editor."""

    def __init__(self, client: SessionClient, folders: SessionFolders) -> None:
        self._client = client
        self.folders = folders

    async def load_documents(self, view: WorkspaceView, paths: Sequence[str]) -> None:
        if self._client.features.has_own_texts:
            limit = asyncio.Semaphore(_MAX_READS)
            await asyncio.gather(*(self._load(view, path, limit) for path in dict.fromkeys(paths)))

    async def _load(self, view: WorkspaceView, path: str, limit: asyncio.Semaphore) -> None:
        try:
            place = view.resolve(path)
            # A file that tools may not change, such as `.git/config`, is read from the disk.
            view.check_writable(place)
            if view.has_read(place) or view.find_kind(place) == "directory":
                return
            async with limit:
                text = await self._fetch_text(view, place)
        except PathRefused:
            return  # The tool gives the model the reason.
        if text is not None:
            view.add_document(DocumentSnapshot(place.uri, 0, text))

    async def _fetch_text(self, view: WorkspaceView, place: Place) -> str | None:
        """Return the client's text of a file, or None if it has none that can be trusted.

        Some clients answer with an empty text for a file that they cannot read. An empty text therefore counts only if
        the file on disk is empty, too.
        """
        path, on_disk = find_absolute_path(place), view.peek(place)
        if path is None or place.root is None or place.root.read_only:
            return None
        try:
            text = _restore_end(await self._client.read_text(path), None if on_disk is None else on_disk.text)
        except (ClientError, TimeoutError):
            return None
        return text if text or (on_disk is not None and not on_disk.text) else None

    async def read_disk_state(self, uri: str) -> FileState:
        """Return the state of a file on disk, which may differ from the client's text."""
        view = self.folders.create_view()
        try:
            on_disk = view.peek(view.resolve(uri))
        except PathRefused as refused:
            return FileState(None, refusal=str(refused))
        return FileState(None if on_disk is None else on_disk.text)

    async def read_state(self, uri: str) -> FileState:
        """Return the current state of a file for a merge, exactly as the client has it.

        A file is refused if its text cannot be trusted, because the client replaces its text with the merged text.
        """
        view = self.folders.create_view()
        try:
            place = view.resolve(uri)
            view.check_writable(place)
            on_disk = view.peek(place)
        except PathRefused as refused:
            return FileState(None, refusal=str(refused))
        disk_text = None if on_disk is None else on_disk.text
        path = find_absolute_path(place)
        if not self._client.features.can_write or path is None:
            return FileState(disk_text)
        try:
            text = _restore_end(await self._client.read_text(path), disk_text)
        except (ClientError, TimeoutError):
            return FileState(None, refusal="the editor did not answer when it was asked for the text of the file")
        if text == "" and disk_text:
            return FileState(None, refusal="the editor shows the file as empty, but it is not empty on disk")
        return FileState(None if not text and disk_text is None else text)
