"""A session that a client has opened: its options, its history and its running prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any

from thinklsp.acp.config_options import build_modes, build_options, choose_option, parse_mode
from thinklsp.acp.open_session import OpenSession
from thinklsp.acp.peer import AcpError, Reply
from thinklsp.acp.prompt_run import PromptRun
from thinklsp.acp.session_replay import build_replay
from thinklsp.acp.undo import settle_killed_edits
from thinklsp.core.errors import SessionError
from thinklsp.core.prompt_syntax import SLASH_COMMANDS
from thinklsp.engine.instructions import find_all_skills
from thinklsp.jsonrpc.error_responses import INVALID_REQUEST, InvalidParams

# A client starts a new session by itself. Each skill is a command of its own.
_HIDDEN_COMMANDS = frozenset(("clear", "skill"))
_MAX_DESCRIPTION_CHARACTERS = 200
_REVIEW = {"name": "review", "description": "reviews the uncommitted changes", "input": {"hint": "what to look at"}}
_TURN_RUNNING = "A turn is running in this session. Cancel it or wait for its end."
# The updates that are sent before other requests get their turn.
_REPLAY_BATCH = 100


class AcpSession:
    """A session of a client, with at most one running prompt."""

    def __init__(self, opened: OpenSession) -> None:
        self._opened = opened
        self._run: PromptRun | None = None
        self._skills: tuple[tuple[str, str], ...] = ()
        self._has_settled = False

    @property
    def id(self) -> str:
        return self._opened.id

    async def describe(self) -> dict[str, Any]:
        """Return the modes and the options, for the answer to a request that opens the session."""
        modes = build_modes(self._opened.mode, self._opened.modes)
        self._skills = await self._list_skills()
        return {"modes": modes, "configOptions": await self._list_options()}

    async def _list_options(self) -> list[dict[str, Any]]:
        opened = self._opened
        return await build_options(opened.sessions, opened.id, opened.mode, opened.modes)

    def send_commands(self) -> None:
        """Send the slash commands. Clients accept them only after the session has been opened."""
        commands = [
            {"name": command.name, "description": command.description}
            | ({} if command.argument == "none" else {"input": {"hint": command.usage.partition(" ")[2]}})
            for command in SLASH_COMMANDS
            if command.name not in _HIDDEN_COMMANDS
        ]
        skills = [
            {"name": f"skill:{name}", "description": description, "input": {"hint": "what to do"}}
            for name, description in self._skills
        ]
        update = {"sessionUpdate": "available_commands_update", "availableCommands": [*commands, _REVIEW, *skills]}
        self._opened.client.send(update)

    async def _list_skills(self) -> tuple[tuple[str, str], ...]:
        """Return the name and the description of each skill that the user can choose."""
        opened = self._opened
        found = await asyncio.to_thread(find_all_skills, opened.folders.create_view(), opened.engine.user.path)
        return tuple(
            (skill.name, " ".join(skill.description.split())[:_MAX_DESCRIPTION_CHARACTERS]) for skill in found.skills
        )

    async def _refresh_commands(self) -> None:
        """Send the slash commands again if the skills changed."""
        skills = await self._list_skills()
        if skills != self._skills:
            self._skills = skills
            self.send_commands()

    async def settle_edits(self, *, asks_client: bool) -> None:
        """Find out which edits of killed processes were applied. If that fails, the next undo tries again."""
        opened = self._opened
        with suppress(SessionError):
            await settle_killed_edits(opened.engine, opened.files, opened.workspace, asks_client=asks_client)

    async def replay(self) -> None:
        """Send the whole stored session again."""
        opened = self._opened
        transcript = await opened.engine.store.read_transcript(opened.id, opened.workspace)
        opened.shown_title = transcript.title
        for number, update in enumerate(await asyncio.to_thread(build_replay, transcript.recover())):
            opened.client.send(update)
            if number % _REPLAY_BATCH == 0:
                await opened.client.wait_for_room()

    async def set_mode(self, mode_id: str) -> None:
        """Set the mode. The options change with it, so the client gets them again."""
        opened = self._opened
        opened.choose_mode(parse_mode(mode_id, opened.modes, "modeId"))
        opened.client.send({"sessionUpdate": "config_option_update", "configOptions": await self._list_options()})

    async def set_option(self, name: str, value: str | bool) -> list[dict[str, Any]]:
        """Set an option and return the complete list. Raises InvalidParams for a wrong name or value."""
        if not isinstance(value, str):
            raise InvalidParams("The field `value` must be a string.")
        if name == "mode":
            mode = parse_mode(value, self._opened.modes, "value")
            self._opened.choose_mode(mode)
            # Clients that know both keep the older modes, too.
            self._opened.client.send({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        else:
            await choose_option(self._opened.sessions, self._opened.id, name, value)
        return await self._list_options()

    def begin_prompt(self, blocks: Sequence[object]) -> Awaitable[Reply]:
        """Begin a prompt at once, so that a cancel that follows finds it. The result is awaited later."""
        if self._run is not None:
            raise AcpError(INVALID_REQUEST, _TURN_RUNNING)
        self._run = run = PromptRun(self._opened, blocks)
        return self._finish_prompt(run)

    async def _finish_prompt(self, run: PromptRun) -> Reply:
        try:
            if not self._has_settled:
                await self.settle_edits(asks_client=True)
                self._has_settled = True
            await self._refresh_commands()
            return Reply({"stopReason": await run.run()})
        finally:
            self._run = None

    def cancel(self) -> None:
        if self._run is not None:
            self._run.cancel()

    async def close(self) -> None:
        """Cancel the running prompt and close the folders."""
        if self._run is not None:
            self._run.cancel()
            await self._run.ended.wait()
        self._opened.folders.close()

    def release_folders(self) -> None:
        """Close the folders of an idle session. The next prompt opens them again."""
        if self._run is None:
            self._opened.folders.close()
