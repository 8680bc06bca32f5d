"""A conversation over ACP: the agent's process, a client model, a signing provider and one session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acp.client import ARGUMENTS, AcpClient, Peer
from tests.acp.fake_zed import FakeZed, FilePeer
from tests.support.client.actions import Request, ResponseError
from tests.support.forking import Nursery
from tests.support.outside import MODEL, Connect, Outside, check_sentence, start

Json = Any
NewPeer = Callable[[Path], Peer]
ARGV = [sys.executable, "-m", "thinklsp", *ARGUMENTS]
# Zed asks for summaries of the thinking by settings of the user; a test sees thoughts only if it asks for them.
SUMMARIES = {"THINKLSP_THINKING_DISPLAY": "summary"}


def connect_by(new_peer: NewPeer, nursery: Nursery | None) -> Connect:
    """Return how an agent is started: forked if that is possible. Each has a peer of its own."""

    async def connect(root: Path, variables: Mapping[str, str]) -> AcpClient:
        if nursery is None:
            return await AcpClient.start(ARGV, cwd=root, env=variables, peer=new_peer(root))
        return AcpClient(await nursery.process(ARGUMENTS, root, variables), new_peer(root))

    return connect


@dataclass
class Talk:
    """`session` is the one that the talk began with; empty before `new_session`."""

    outside: Outside
    session: str = ""

    @property
    def client(self) -> Any:
        return self.outside.client

    @property
    def peer(self) -> Any:
        return self.outside.client.editor

    @property
    def provider(self) -> Any:
        return self.outside.provider

    @property
    def root(self) -> Path:
        return self.outside.root

    async def new_session(self, **members: Any) -> Json:
        result = await self.client.request("session/new", {"cwd": str(self.root), "mcpServers": []} | members)
        self.session = result["sessionId"]
        return result

    def send(self, *blocks: Json, session: str | None = None) -> Request:
        request: Request = self.client.prompt(self.session if session is None else session, *blocks)
        return request

    async def prompt(self, *blocks: Json, session: str | None = None) -> str:
        """Send a prompt; return the stop reason."""
        result = await self.send(*blocks, session=session)
        return str(result["stopReason"])

    def updates(self, *kinds: str) -> list[Json]:
        found: list[Json] = self.client.updates(self.session, *kinds)
        return found

    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for update in self.updates()]

    @property
    def text(self) -> str:
        return str(self.client.text(self.session))

    def tools(self, kind: str | None = None) -> list[Any]:
        """Return the tool calls of the session as the client knows them; of a kind, or all."""
        found = self.client.checker.sessions[self.session].tools.values()
        return [tool for tool in found if kind in (None, tool.members.get("kind"))]

    def edit_statuses(self) -> list[str]:
        """Return the status of each edit of a file that was offered, which is a tool call with a diff."""
        return [tool.status for tool in self.tools("edit") if diffs(tool.members)]

    async def refused(self, method: str, params: Json = None) -> ResponseError:
        """Send a request that is refused; return its error, which must be a sentence."""
        return await refusal(self.client.request(method, params))


async def refusal(request: Request) -> ResponseError:
    try:
        result = await request
    except ResponseError as error:
        check_sentence(error.message)
        return error
    raise AssertionError(f"{request.method} was answered: {result!r:.300}")


def diffs(call: Json) -> list[Json]:
    return [part for part in call.get("content") or [] if part.get("type") == "diff"]


async def begin_talk(
    place: Path,
    *script: Any,
    peer: Callable[[Path], FilePeer] = FakeZed,
    nursery: Nursery | None = None,
    own: str = "",
    session: bool = True,
    env: Mapping[str, str | None] | None = None,
    **how: Any,
) -> Talk:
    """Start an agent and a session. `own`: the user's own file. `peer`: the client model."""
    variables: dict[str, str | None] = {"THINKLSP_MODEL": MODEL, **(env or {})}
    if own:
        path = place / "own" / "config.toml"
        path.parent.mkdir(parents=True, mode=0o700)
        path.write_text(own)
        path.chmod(0o600)
        variables["THINKLSP_CONFIG"] = str(path)
    how.setdefault("connect", connect_by(peer, nursery))
    talk = Talk(await start(place, *script, env=variables, **how))
    if session and how.get("initialize", True):
        await talk.new_session()
    return talk
