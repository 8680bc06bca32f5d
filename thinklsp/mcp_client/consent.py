"""The user's consent to the MCP servers that a project or a client of the agent names.

The answer yes is stored with the hash of the entry. The answer no lasts until the process exits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from thinklsp.core.choices import NOT_NOW
from thinklsp.core.errors import SettingsError
from thinklsp.core.tool_type import Ask
from thinklsp.mcp_client.approvals import Approval, Approvals, is_approved, is_changed
from thinklsp.mcp_client.offered_server import OfferedServer
from thinklsp.mcp_client.server_config import ServerConfig

USE, NONE_OF_THEM = "Use it", "None of them now"
_MAX_QUESTIONS = 8


class ServerConsent:
    """The consent of one process. `show_text` makes invisible characters visible."""

    def __init__(self, approvals: Approvals, show_text: Callable[[str], str]) -> None:
        self._approvals = approvals
        self._show_text = show_text
        self._answers: dict[tuple[str, str, str], bool] = {}
        # Without the lock, two turns that start at the same time could ask the same question twice.
        self._question_lock = asyncio.Lock()

    async def select_servers(
        self, offered: Sequence[OfferedServer], ask: Ask, *, is_trusted: Callable[[str], bool]
    ) -> tuple[tuple[ServerConfig, ...], tuple[str, ...]]:
        """Return the servers that may run, with notices. Asks about each server in a trusted folder that is new or
        whose entry has changed."""
        usable = [server for server in offered if is_trusted(server.folder)]
        notices = []
        if names := [server.config.name for server in offered if server not in usable]:
            notices.append(f"The folder is not trusted, so its MCP servers are off: {', '.join(names)}.")
        if not usable:
            return (), tuple(notices)
        async with self._question_lock:
            try:
                approvals = await asyncio.to_thread(self._approvals.read)
            except SettingsError as error:
                return (), (*notices, str(error))
            new = [server for server in usable if not is_approved(server, approvals) and not self._is_answered(server)]
            notices += await self._ask_all(new, approvals, ask)
        chosen = (server for server in usable if is_approved(server, approvals) or self._answers.get(_key(server)))
        return tuple(server.config for server in chosen), tuple(notices)

    def _is_answered(self, server: OfferedServer) -> bool:
        return _key(server) in self._answers

    async def _ask_all(self, new: Sequence[OfferedServer], approvals: tuple[Approval, ...], ask: Ask) -> list[str]:
        """Ask about the servers one by one, until the user refuses the rest. Return notices."""
        notices: list[str] = []
        for number, server in enumerate(new):
            rest = len(new) - number - 1
            options = (USE, NOT_NOW, NONE_OF_THEM) if rest else (USE, NOT_NOW)
            question = self._build_question(server, is_changed=is_changed(server, approvals))
            answer = NONE_OF_THEM if number >= _MAX_QUESTIONS else await ask(question, options)
            if answer is None or answer == NONE_OF_THEM:
                self._answers |= dict.fromkeys(map(_key, new[number:]), False)
                names = ", ".join(each.config.name for each in new[number:])
                if answer is None or number >= _MAX_QUESTIONS:
                    notices.append(f"MCP servers that you did not approve are off: {names}. {_HINT}")
                break
            self._answers[_key(server)] = answer == USE
            if answer == USE:
                notices += await asyncio.to_thread(self._remember, server)
        return notices

    def _remember(self, server: OfferedServer) -> list[str]:
        try:
            self._approvals.approve(server)
        except SettingsError as error:
            return [f"{error} The MCP server `{server.config.name}` is approved until this server exits."]
        return []

    def _build_question(self, server: OfferedServer, *, is_changed: bool) -> str:
        changed = " Its entry changed since you approved it." if is_changed else ""
        first = f"Use the MCP server `{server.config.name}`, which {server.place} names?{changed}"
        warning = "It runs with your rights and can send data to others." if server.config.command else ""
        return self._show_text("\n".join(filter(None, (first, server.description, warning))))


_HINT = "`thinklsp mcp approve NAME` approves one."


def _key(server: OfferedServer) -> tuple[str, str, str]:
    return server.folder, server.config.name, server.digest
