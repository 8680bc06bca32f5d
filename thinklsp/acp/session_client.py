"""The requests and updates that the agent sends to the client of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from thinklsp.acp.initialization import AnnouncedFeatures
from thinklsp.acp.peer import RESOURCE_NOT_FOUND, AcpPeer
from thinklsp.acp.updates import Update
from thinklsp.jsonrpc.error_responses import ClientError
from thinklsp.workspace.uri import is_encodable

READ_SECONDS = 10.0
WRITE_SECONDS = 60.0
ANSWER_SECONDS = 600.0
_ROOM_SECONDS = 0.05
_TIMEOUT = "the question was not answered within ten minutes"
# The time limit of a read if the client has not answered the read before it.
_SILENT_READ_SECONDS = 1.0

OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


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

    async def request_permission(self, tool_call: Mapping[str, Any], options: Sequence[Option]) -> Option:
        """Ask the user, and return the chosen option.

        Raises PermissionCancelled if the client has cancelled the turn, and NoAnswer without a valid answer.
        """
        rows = [{"optionId": option.id, "name": option.name, "kind": option.kind} for option in options]
        params = {"sessionId": self.session_id, "toolCall": tool_call, "options": rows}
        try:
            answer = await self._peer.request("session/request_permission", params, ANSWER_SECONDS)
        except ClientError:
            raise NoAnswer("the editor could not ask you") from None
        except TimeoutError:
            raise NoAnswer(_TIMEOUT) from None
        outcome = answer.get("outcome") if isinstance(answer, Mapping) else None
        kind = outcome.get("outcome") if isinstance(outcome, Mapping) else None
        if kind == "cancelled":
            raise PermissionCancelled
        chosen = outcome.get("optionId") if isinstance(outcome, Mapping) and kind == "selected" else None
        for option in options:
            if option.id == chosen:
                return option
        raise NoAnswer("the editor gave no valid answer")

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
        try:
            reply = await self._peer.request("elicitation/create", params, ANSWER_SECONDS)
        except ClientError:
            raise NoAnswer("the editor could not ask you") from None
        except TimeoutError:
            raise NoAnswer(_TIMEOUT) from None
        content = reply.get("content") if isinstance(reply, Mapping) and reply.get("action") == "accept" else None
        answer = content.get("answer") if isinstance(content, Mapping) else None
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
        text = answer.get("content") if isinstance(answer, Mapping) else None
        if not isinstance(text, str) or not is_encodable(text):
            raise ClientError("The client's answer to `fs/read_text_file` has no text.")
        return text

    async def write_text(self, path: str, text: str) -> None:
        """Ask the client to write a file. Raises ClientError or TimeoutError if it does not confirm that."""
        params = {"sessionId": self.session_id, "path": path, "content": text}
        await self._peer.request("fs/write_text_file", params, WRITE_SECONDS)
