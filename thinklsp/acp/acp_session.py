"""A session that a client has opened, and its options: the mode, the model and the effort."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from thinklsp.acp.edit_writer import EditWriter
from thinklsp.acp.session_client import ClientFiles, SessionClient
from thinklsp.acp.updates import build_replay
from thinklsp.core.choices import EFFORT_SETTINGS
from thinklsp.core.errors import SessionError
from thinklsp.core.prompt_syntax import SLASH_COMMANDS, SlashCommand
from thinklsp.engine import Engine
from thinklsp.engine.instructions import find_all_skills
from thinklsp.engine.session_folders import SessionFolders
from thinklsp.engine.turn_config import Preferences
from thinklsp.engine.workspace_sessions import WorkspaceSessions
from thinklsp.jsonrpc.rpc_messages import InvalidParams
from thinklsp.mcp_client.server_entries import ClientEntry

AcpMode = Literal["ask", "edit", "auto"]
"""`ask` only reads, `edit` asks before it changes a file, and `auto` changes files without a question."""

_MODES: Mapping[AcpMode, tuple[str, str]] = {
    "ask": ("Ask", "Answers questions and changes nothing."),
    "edit": ("Edit", "Asks before it changes a file."),
    "auto": ("Auto", "Changes files in trusted folders without a question."),
}
_OFF = "off"
# A client starts a new session by itself.
COMMANDS = (
    *(command for command in SLASH_COMMANDS if command.name != "clear"),
    SlashCommand("review", "text", "/review [what to look at]", "reviews the uncommitted changes"),
)
_MAX_DESCRIPTION_CHARACTERS = 200
# The updates that are sent before other requests get their turn.
_REPLAY_BATCH = 100


class AcpSession:
    """A session of a client. `id` is the id of the stored session, and `workspace` the key of its workspace.

    `mode` can change during a turn: a stricter mode counts at once for edits. `notices` wait for the next turn.
    `unapplied` describes the edits of earlier turns that are not in the files, for the model. `servers` are the MCP
    servers that the client names. `edit_lock` is shared by all sessions of a client.
    """

    def __init__(
        self,
        engine: Engine,
        client: SessionClient,
        folders: SessionFolders,
        edit_lock: asyncio.Lock,
        servers: tuple[ClientEntry, ...],
    ) -> None:
        self.engine = engine
        self.client = client
        self.id = client.session_id
        self.folders = folders
        self.workspace = folders.key
        self.servers = servers
        self.mode: AcpMode = "edit"
        self.notices: list[str] = [*engine.user.problems, *folders.problems]
        self.unapplied: list[str] = []
        self.shown_title = ""
        self.files = ClientFiles(client, folders)
        self.sessions = WorkspaceSessions(engine, lambda: folders.key, Preferences())
        self.writer = EditWriter(engine, client, self.files, edit_lock)
        self._reported_problems = 0
        self._has_settled = False
        self._skills: tuple[tuple[str, str], ...] = ()

    def take_notices(self) -> list[str]:
        """Return the notices that the user has not seen, with new problems of the store."""
        problems = self.engine.store.problems
        notices = [*self.notices, *problems[self._reported_problems :]]
        self.notices, self._reported_problems = [], len(problems)
        return notices

    async def describe(self) -> dict[str, Any]:
        """Return the modes and the options, for the answer to a request that opens the session.

        The modes are for clients that do not know options.
        """
        available = [{"id": mode, "name": name, "description": text} for mode, name, text in self._list_modes()]
        self._skills = await self._list_skills()
        modes = {"currentModeId": self.mode, "availableModes": available}
        return {"modes": modes, "configOptions": await self._build_options()}

    async def replay(self) -> None:
        """Send the whole stored session again."""
        transcript = await self.engine.store.read_transcript(self.id, self.workspace)
        self.shown_title = transcript.title
        for number, update in enumerate(await asyncio.to_thread(build_replay, transcript.recover())):
            self.client.send(update)
            if number % _REPLAY_BATCH == 0:
                await self.client.wait_for_room()

    async def prepare_prompt(self) -> None:
        """Settle the edits of killed processes before the first prompt, and send the commands if the skills changed."""
        if not self._has_settled:
            await self.settle_edits(asks_client=True)
            self._has_settled = True
        skills = await self._list_skills()
        if skills != self._skills:
            self._skills = skills
            self.send_commands()

    async def settle_edits(self, *, asks_client: bool) -> None:
        """Find out which edits of killed processes were applied. If that fails, the next undo tries again."""
        with suppress(SessionError):
            await self.writer.settle_killed_edits(asks_client=asks_client)

    async def _list_skills(self) -> tuple[tuple[str, str], ...]:
        """Return the name and the description of each skill that the user can choose."""
        found = await asyncio.to_thread(find_all_skills, self.folders.create_view(), self.engine.user.path)
        return tuple(
            (skill.name, " ".join(skill.description.split())[:_MAX_DESCRIPTION_CHARACTERS]) for skill in found.skills
        )

    def send_commands(self) -> None:
        """Send the slash commands. Clients accept them only after the session has been opened."""
        commands = [
            {"name": command.name, "description": command.description}
            | ({} if command.argument == "none" else {"input": {"hint": command.usage.partition(" ")[2]}})
            for command in COMMANDS
            if command.name != "skill"  # Each skill is a command of its own.
        ]
        skills = [
            {"name": f"skill:{name}", "description": description, "input": {"hint": "what to do"}}
            for name, description in self._skills
        ]
        self.client.send({"sessionUpdate": "available_commands_update", "availableCommands": [*commands, *skills]})

    def set_mode(self, value: str, field: str) -> None:
        """Set the mode. That also ends the permission for all edits, because the user expects to be asked again.

        Raises InvalidParams, which names the field, for a mode that the client may not choose.
        """
        names = [mode for mode, _, _ in self._list_modes()]
        mode = next((name for name in names if name == value), None)
        if mode is None:
            needs = " The mode `auto` needs `allow_auto = true` in `[acp]` of your config.toml."
            hint = "" if "auto" in names else needs
            raise InvalidParams(f"The field `{field}` must be one of {', '.join(names)}.{hint}")
        self.mode = mode
        self.writer.allows_all = False

    async def set_option(self, name: str, value: str | bool) -> list[dict[str, Any]]:
        """Set an option and return the complete list. Raises InvalidParams for a wrong name or value."""
        if not isinstance(value, str):
            raise InvalidParams("The field `value` must be a string.")
        if name == "mode":
            self.set_mode(value, "value")
            # Clients that know both keep the older modes, too.
            self.client.send({"sessionUpdate": "current_mode_update", "currentModeId": value})
        elif name in ("model", "effort"):
            await self._choose(name, value)
        else:
            raise InvalidParams("The field `configId` must be one of mode, model, effort.")
        return await self._build_options()

    async def _choose(self, name: str, value: str) -> None:
        current = await self.sessions.choose(name, None, self.id)
        if value not in (_OFF if name == "effort" else None, current["value"], *current["choices"]):
            raise InvalidParams(f"The field `value` must be one of the values of the option `{name}`.")
        if name == "effort" and value == _OFF:
            await self.sessions.choose("thinking", _OFF, self.id)
            return
        if name == "effort" and (await self.sessions.choose("thinking", None, self.id))["value"] == _OFF:
            await self.sessions.choose("thinking", "auto", self.id)
        await self.sessions.choose(name, value, self.id)

    async def send_options(self) -> None:
        """Send the options again, because one of them has changed."""
        self.client.send({"sessionUpdate": "config_option_update", "configOptions": await self._build_options()})

    def _list_modes(self) -> list[tuple[AcpMode, str, str]]:
        """Return the id, the name and the description of each mode. `auto` needs the user's own file."""
        allows_auto = self.engine.user.file.acp.allow_auto
        return [(mode, *texts) for mode, texts in _MODES.items() if mode != "auto" or allows_auto]

    async def _build_options(self) -> list[dict[str, Any]]:
        """Return the complete list of options, the most important first."""
        model, effort, thinking = [
            await self.sessions.choose(name, None, self.id) for name in ("model", "effort", "thinking")
        ]
        titles = {entry["id"]: entry["title"] for entry in model["models"]}
        models = [(each, titles.get(each) or each, "") for each in dict.fromkeys((*model["choices"], model["value"]))]
        efforts = [(_OFF, "Thinking off", ""), *((each, each.capitalize(), "") for each in EFFORT_SETTINGS)]
        level = _OFF if thinking["value"] == _OFF else effort["value"]
        return [
            _build_select("mode", "Mode", "mode", self.mode, self._list_modes()),
            _build_select("model", "Model", "model", model["value"], models),
            _build_select("effort", "Effort", "thought_level", level, efforts),
        ]


def _build_select(
    option_id: str, name: str, category: str, value: str, choices: Sequence[tuple[str, str, str]]
) -> dict[str, Any]:
    options = [
        {"value": each, "name": title} | ({"description": text} if text else {}) for each, title, text in choices
    ]
    return {
        "id": option_id,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": value,
        "options": options,
    }
