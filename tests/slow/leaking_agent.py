"""An agent that leaks a text of its own by each output. This module is the process that forks it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

from tests.slow.leaking import around
from tests.support.forking import fork_servers
from thinklsp.acp import acp_session, acp_turn, host
from thinklsp.acp.acp_session import AcpSession
from thinklsp.acp.host import PromptRun
from thinklsp.acp.peer import AcpPeer
from thinklsp.acp.session_client import SessionClient

Change = Callable[[Any], Any]


def make_secret(sink: str) -> str:
    return sha256(sink.encode()).hexdigest()


def _in_update(kind: str, change: Change) -> None:
    def send(original: Any, client: SessionClient, update: Any) -> None:
        original(client, change(dict(update)) if update["sessionUpdate"] == kind else update)

    around(SessionClient, "send", send)


def _in_text(kind: str, text: str) -> None:
    def add(update: Any) -> Any:
        return update | {"content": {"type": "text", "text": f"{update['content']['text']} {text}"}}

    _in_update(kind, add)


def _in_request(name: str, add: Change) -> None:
    async def request(original: Any, peer: AcpPeer, method: str, params: Any, seconds: float) -> Any:
        return await original(peer, method, add(dict(params)) if method == name else params, seconds)

    around(AcpPeer, "request", request)


def _in_call(text: str) -> None:
    _in_request(
        "session/request_permission", lambda params: params | {"toolCall": params["toolCall"] | {"title": text}}
    )


def _in_result(owner: Any, name: str, change: Change) -> None:
    around(owner, name, lambda original, *given, **named: change(original(*given, **named)))


def _in_argument(owner: Any, name: str, text: str) -> None:
    """Add the text to the last argument."""
    around(owner, name, lambda original, *given: original(*given[:-1], f"{given[-1]} {text}"))


def _in_page(text: str) -> None:
    def add(page: Any) -> Any:
        return page | {"sessions": [entry | {"title": text} for entry in page["sessions"]]}

    _in_result(host, "build_page", add)


def _in_replay(text: str) -> None:
    def add(updates: Any) -> Any:
        return [update | {"title": text} if "title" in update else update for update in updates]

    _in_result(acp_session, "build_replay", add)


def _in_options(text: str) -> None:
    async def build(original: Any, *given: Any) -> Any:
        return [option | {"description": text} for option in await original(*given)]

    around(AcpSession, "_build_options", build)


def _beside_updates(write: Callable[[], object]) -> None:
    def send(original: Any, client: SessionClient, update: Any) -> None:
        write()
        original(client, update)

    around(SessionClient, "send", send)


SINKS: dict[str, Callable[[str], None]] = {
    "text": partial(_in_text, "agent_message_chunk"),
    "thought": partial(_in_text, "agent_thought_chunk"),
    "id of a tool call": lambda text: _in_result(acp_turn, "format_call_id", lambda name: f"{name} {text}"),
    "rawInput": lambda text: _in_result(acp_turn, "parse_shown_json", lambda _: {"a": text}),
    "rawOutput": lambda text: _in_update("tool_call_update", lambda update: update | {"rawOutput": text}),
    "content of a tool call": partial(_in_argument, acp_turn, "build_text_content"),
    "permission": _in_call,
    "form": lambda text: _in_request("elicitation/create", lambda params: params | {"message": text}),
    "error": partial(_in_argument, AcpPeer, "_send_error"),
    "replay": _in_replay,
    "title in the list": _in_page,
    "option": _in_options,
    "slash command": partial(_in_argument, PromptRun, "_say"),
    "log": lambda text: _beside_updates(lambda: logging.getLogger("thinklsp").warning("got %s", text)),
    "stderr": lambda text: _beside_updates(lambda: os.write(2, f"{text}\n".encode())),
}


def arm() -> None:
    for sink, plant in SINKS.items():
        plant(make_secret(sink))


if __name__ == "__main__":
    sys.exit(fork_servers(arm))
