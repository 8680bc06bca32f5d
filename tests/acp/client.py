"""A raw ACP client on stdio, which knows ACP v1 and nothing of the product or of an SDK.

It keeps every byte that the agent writes, has each line checked as it comes (`agent_rules`), and answers the agent's
requests by the handlers of a `Peer`. It never sleeps: `wait_for` waits on what was observed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.acp.agent_rules import AgentChecker
from tests.support.client.actions import Process, Received, Request
from tests.support.client.raw import StdioWire
from tests.support.client.talking import Talking

Json = Any
Handler = Callable[[Json], Any]
ARGUMENTS = ("acp",)


class Refuse(Exception):
    """Raise in a handler to answer with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message}


class NoAnswer(Exception):
    """Raise in a handler to leave the request unanswered."""


class Peer:
    """The program in which a client runs: what it announces, and how it answers the agent.

    `handlers`: by method. A handler returns the result, may be a coroutine that waits, and raises `Refuse` or
    `NoAnswer`. `choices`: the answers to the next questions for permission, each the id or the kind of an option, an
    outcome as it is sent, or a handler; the last one stays.
    """

    name = "tests"
    capabilities: ClassVar[Json] = {}

    def __init__(self) -> None:
        self.announced = deepcopy(type(self).capabilities)
        self.settings: Json = {}
        self.choices: list[Any] = ["allow_once"]
        self.handlers: dict[str, Handler] = {"session/request_permission": self.choose}

    async def choose(self, params: Json) -> Json:
        choice = self.choices.pop(0) if len(self.choices) > 1 else self.choices[0]
        if callable(choice):
            choice = choice(params)
            if inspect.isawaitable(choice):
                choice = await choice
        if isinstance(choice, dict):
            return choice
        for option in params["options"]:
            if choice in (option["optionId"], option["kind"]):
                return selected(option["optionId"])
        return selected(choice)

    async def answer(self, method: str, params: Json) -> Json:
        """Return the members of a response. Raises NoAnswer."""
        handler = self.handlers.get(method)
        if handler is None:
            return {"error": {"code": -32601, "message": f"no method {method}"}}
        try:
            result = handler(params)
            return {"result": await result if inspect.isawaitable(result) else result}
        except Refuse as refused:
            return {"error": refused.error}


def selected(option: str) -> Json:
    return {"outcome": {"outcome": "selected", "optionId": option}}


CANCELLED: Json = {"outcome": {"outcome": "cancelled"}}


class LineWire(StdioWire):
    def write(self, line: bytes) -> None:
        if not self._process.stdin.is_closing():
            self._process.stdin.write(line + b"\n")


class AcpClient(Talking):
    """Start with `await AcpClient.start(...)`, then `initialize`, and `close` at the end.

    The members that `tests.support.outside` needs have the names that they have in the LSP clients.
    """

    own, other = "client", "agent"

    def __init__(self, process: Any, peer: Peer) -> None:
        super().__init__()
        self.process = process
        self.editor = peer
        self.checker = AgentChecker()
        self.agent: Json = {}
        self.received: list[Received] = []
        self.stdout, self.stderr = bytearray(), bytearray()
        self.begin(LineWire(process), first_id=0)

    @classmethod
    async def start(cls, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], peer: Peer | None = None) -> Self:
        pipe = asyncio.subprocess.PIPE
        process: Process = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=dict(env), stdin=pipe, stdout=pipe, stderr=pipe, umask=0
        )
        return cls(process, peer or Peer())

    # Life cycle

    async def initialize(
        self, root: Path | None = None, *, announce: Json = None, options: Json = None, version: int = 1
    ) -> Json:
        """`root` and `options` have no place in ACP; they are taken as the LSP clients take them."""
        capabilities = self.editor.announced if announce is None else announce
        info = {"name": self.editor.name, "version": "1"}
        params = {"protocolVersion": version, "clientCapabilities": capabilities, "clientInfo": info}
        self.agent = await self.request("initialize", params)
        return self.agent

    async def close(self) -> int:
        """Close the agent's input, and return its exit code."""
        if not self.has_gone:
            self.process.stdin.close()
            code = await self.gone()
            self.checker.finish()
            return code
        return await self.gone()

    # Talking

    def prompt(self, session: str, *blocks: Json) -> Request:
        """Send a prompt; a text stands for a block of text."""
        whole = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        return self.request("session/prompt", {"sessionId": session, "prompt": whole})

    def cancel(self, session: str) -> None:
        self.notify("session/cancel", {"sessionId": session})

    def send_line(self, line: bytes) -> None:
        """Send bytes as they are, and the newline."""
        self.wire.write(line)

    # What was observed

    def updates(self, session: str | None = None, *kinds: str) -> list[Json]:
        """Return the updates of a session, or of all; of these kinds, or of all."""
        told = [r.message["params"] for r in self.received if r.message.get("method") == "session/update"]
        found = [params["update"] for params in told if session in (None, params["sessionId"])]
        return [update for update in found if not kinds or update["sessionUpdate"] in kinds]

    def text(self, session: str | None = None, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.updates(session, kind))

    def requests(self, method: str) -> list[Json]:
        """Return the params of the agent's requests."""
        return [r.params for r in self.asked if r.message["method"] == method]

    @property
    def asked(self) -> list[Received]:
        """The agent's requests."""
        return [r for r in self.received if {"method", "id"} <= r.message.keys()]

    def calls(self, method: str) -> list[Received]:
        return [r for r in self.received if r.message.get("method") == method]

    def messages(self) -> list[str]:
        """Return what the agent told beside the model's text."""
        notices = [f"{u['title']} {u.get('description') or ''}".strip() for u in self.updates(None, "notice")]
        chunks = (u["content"]["text"] for u in self.updates(None, "agent_message_chunk"))
        return notices + [text.strip() for text in chunks if text.lstrip().startswith("Note:")]

    def lone_errors(self) -> list[Json]:
        """Return the errors that answer no request."""
        return [r.message["error"] for r in self.received if "error" in r.message and r.message.get("id") is None]

    # Reading and answering

    def _encode(self, message: Json) -> bytes:
        text = json.dumps(message, ensure_ascii=False)
        # Only an escape can contain a lone surrogate.
        is_plain = not any("\ud800" <= char <= "\udfff" for char in text)
        return text.encode() if is_plain else json.dumps(message).encode()

    def _take_bodies(self) -> Iterator[bytes]:
        *lines, self._unread = self._unread.split(b"\n")
        return map(bytes, lines)

    def _check(self, body: bytes) -> Json:
        return self.checker.line(body)

    async def _answer(self, message: Json) -> None:
        with suppress(NoAnswer):
            await super()._answer(message)
