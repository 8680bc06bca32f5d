"""The parts of a session that a client has opened, and its options: the mode, the model and the effort."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from thinklsp.acp.edit_writer import EditWriter
from thinklsp.acp.session_client import ClientFiles, SessionClient, SessionFolders
from thinklsp.core.choices import EFFORT_SETTINGS
from thinklsp.engine import Engine
from thinklsp.engine.session_commands import SlashAnswers
from thinklsp.engine.turn_config import Preferences
from thinklsp.engine.workspace_sessions import WorkspaceSessions
from thinklsp.jsonrpc.rpc_messages import InvalidParams
from thinklsp.mcp_client.server_entries import ClientServer

AcpMode = Literal["ask", "edit", "auto"]
"""`ask` only reads, `edit` asks before it changes a file, and `auto` changes files without a question."""

OFF = "off"
_OPTION_NAMES = ("model", "effort")
_MODES: Mapping[AcpMode, tuple[str, str]] = {
    "ask": ("Ask", "Answers questions and changes nothing."),
    "edit": ("Edit", "Asks before it changes a file."),
    "auto": ("Auto", "Changes files in trusted folders without a question."),
}
_MODE_NAMES: tuple[AcpMode, ...] = get_args(AcpMode)


def list_modes(*, allows_auto: bool) -> tuple[AcpMode, ...]:
    """Return the modes that a client may choose. `auto` needs the user's own file."""
    return _MODE_NAMES if allows_auto else ("ask", "edit")


def build_modes(mode: AcpMode, modes: tuple[AcpMode, ...]) -> dict[str, Any]:
    """Return the modes for clients that do not know config options."""
    available = [{"id": each, "name": _MODES[each][0], "description": _MODES[each][1]} for each in modes]
    return {"currentModeId": mode, "availableModes": available}


def parse_mode(value: object, modes: tuple[AcpMode, ...], field: str) -> AcpMode:
    mode = next((each for each in modes if each == value), None)
    if mode is None:
        hint = "" if "auto" in modes else " The mode `auto` needs `allow_auto = true` in `[acp]` of your config.toml."
        raise InvalidParams(f"The field `{field}` must be one of {', '.join(modes)}.{hint}")
    return mode


async def build_options(
    sessions: WorkspaceSessions, session_id: str, mode: AcpMode, modes: tuple[AcpMode, ...]
) -> list[dict[str, Any]]:
    """Return the complete list of options, the most important first."""
    model = await sessions.choose("model", None, session_id)
    effort = await sessions.choose("effort", None, session_id)
    thinking = await sessions.choose("thinking", None, session_id)
    is_off = thinking["value"] == OFF
    titles = {entry["id"]: entry["title"] for entry in model["models"]}
    models = dict.fromkeys((*model["choices"], model["value"]))
    return [
        _build_select("mode", "Mode", "mode", mode, [(each, *_MODES[each]) for each in modes]),
        _build_select(
            "model", "Model", "model", model["value"], [(each, titles.get(each) or each, "") for each in models]
        ),
        _build_select(
            "effort",
            "Effort",
            "thought_level",
            OFF if is_off else effort["value"],
            [(OFF, "Thinking off", ""), *((each, each.capitalize(), "") for each in EFFORT_SETTINGS)],
        ),
    ]


async def choose_option(sessions: WorkspaceSessions, session_id: str, name: str, value: str) -> None:
    """Set the model or the effort. Raises InvalidParams for another option or a value that is not offered."""
    if name not in _OPTION_NAMES:
        raise InvalidParams(f"The field `configId` must be one of mode, {', '.join(_OPTION_NAMES)}.")
    current = await sessions.choose(name, None, session_id)
    if value not in (OFF if name == "effort" else None, current["value"], *current["choices"]):
        raise InvalidParams(f"The field `value` must be one of the values of the option `{name}`.")
    if name == "effort" and value == OFF:
        await sessions.choose("thinking", OFF, session_id)
    elif name == "effort":
        thinking = await sessions.choose("thinking", None, session_id)
        if thinking["value"] == OFF:
            await sessions.choose("thinking", "auto", session_id)
        await sessions.choose("effort", value, session_id)
    else:
        await sessions.choose("model", value, session_id)


def _build_select(
    option_id: str, name: str, category: str, value: str, choices: list[tuple[str, str, str]]
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


class OpenSession:
    """The parts of a session. `id` is the id of the stored session, and `workspace` the key of its workspace.

    `mode` can change during a turn: a stricter mode counts at once for edits. `notices` wait for the next turn.
    `unapplied` describes the edits of earlier turns that are not in the files, for the model. `servers` are the MCP
    servers that the client names.
    """

    def __init__(
        self,
        engine: Engine,
        client: SessionClient,
        folders: SessionFolders,
        edit_lock: asyncio.Lock,
        servers: tuple[ClientServer, ...],
    ) -> None:
        self.engine = engine
        self.client = client
        self.folders = folders
        self.servers = servers
        self.mode: AcpMode = "edit"
        self.notices: list[str] = [*engine.user.problems, *folders.problems]
        self.unapplied: list[str] = []
        self.shown_title = ""
        self.files = ClientFiles(client, folders)
        get_workspace: Callable[[], str] = lambda: folders.key  # noqa: E731 - a constant for two objects
        self.sessions = WorkspaceSessions(engine, get_workspace, Preferences())
        self.slash_answers = SlashAnswers(self.sessions, engine, get_workspace)
        writes_disk = engine.user.file.acp.write_disk
        self.writer = EditWriter(client, folders, self.files, engine.store, edit_lock, writes_disk=writes_disk)
        self._reported_problems = 0

    @property
    def id(self) -> str:
        return self.client.session_id

    @property
    def workspace(self) -> str:
        return self.folders.key

    @property
    def modes(self) -> tuple[AcpMode, ...]:
        """The modes that the client may choose."""
        return list_modes(allows_auto=self.engine.user.file.acp.allow_auto)

    def choose_mode(self, mode: AcpMode) -> None:
        """Set the mode. That also ends the permission for all edits, because the user expects to be asked again."""
        self.mode = mode
        self.writer.allows_all = False

    def take_notices(self) -> list[str]:
        """Return the notices that the user has not seen, with new problems of the store."""
        problems = self.engine.store.problems
        notices = [*self.notices, *problems[self._reported_problems :]]
        self.notices, self._reported_problems = [], len(problems)
        return notices
