"""The user's approvals of MCP servers that projects and clients name, and the accepted tools of each server.

An approval applies to a folder, a name and the digest of an entry, so a changed entry needs a new one. A server could
also change a tool after the user has accepted it. So the hash of the command line or URL, and of everything that the
server says about a tool, is pinned. Both files are in the state folder, and are read on every call, because another
process may change them. If a file cannot be read, nothing is accepted, and the file is not overwritten.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from thinklsp.core.choices import NOT_NOW
from thinklsp.core.errors import SettingsError
from thinklsp.core.json_codec import read_json
from thinklsp.core.text_safety import escape_invisible, to_one_line
from thinklsp.core.tool_type import Ask
from thinklsp.mcp_client.server_config import ListedTool, OfferedServer, ServerConfig, compute_digest
from thinklsp.mcp_client.tool_schemas import hash_tool, is_usable_tool_name, list_content
from thinklsp.settings.config_files import lock_folder, make_private, read_text, replace_file

APPROVALS_NAME, PINS_NAME = "mcp-approvals.json", "mcp-pins.json"
USE, NONE_OF_THEM = "Use it", "None of them now"
_HINT = "`thinklsp mcp approve NAME` approves one."
_MAX_APPROVALS = 1_000
_MAX_QUESTIONS = 8
_MAX_RECORDS = 20
_MAX_DEFINITION = 8_000
_MAX_FIRST_SIGHT = 400

PinState = Literal["new", "same", "changed"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Content = TypeVar("Content", bound=BaseModel)


class _StateFile(Generic[Content]):
    """A private JSON file in the state folder, which is read on every call.

    `_empty` is the content of a file that does not exist, and `_consequence` a sentence about a file that is unusable.
    """

    name: str
    _empty: Content
    _consequence: str
    _max_bytes = 1_000_000

    def __init__(self, state_folder: str, lock_timeout: float = 5.0) -> None:
        self.state_folder = state_folder
        self.path = os.path.join(state_folder, self.name)
        self._lock_timeout = lock_timeout

    def _load(self) -> Content:
        """Return the content. Raises SettingsError if the file cannot be read, trusted or parsed."""
        try:
            text = read_text(self.path, self.name, self._max_bytes)
            if not text and not os.path.lexists(self.path):
                return self._empty
            return type(self._empty).model_validate(read_json(text))
        except SettingsError as error:
            raise SettingsError("mcp", f"{error} {self._consequence}") from None
        except (ValidationError, ValueError):
            advice = "Delete it to be asked again."
            raise SettingsError("mcp", f"{self.path} is damaged. {advice} {self._consequence}") from None

    def _change(self, edit: Callable[[Content], Content]) -> None:
        """Replace the content, while no other process changes it. Raises SettingsError."""
        try:
            make_private(self.state_folder)
            with lock_folder(self.state_folder, self._lock_timeout):
                text = json.dumps(edit(self._load()).model_dump(), sort_keys=True, indent=1)
                if len(text) >= self._max_bytes:
                    raise SettingsError("mcp", f"{self.path} would become too large. Delete it to be asked again.")
                replace_file(self.path, text + "\n")
        except OSError as error:
            problem = f"{self.path} cannot be written: {error.strerror}."
            raise SettingsError("mcp", f"{problem} {self._consequence}") from None


class ServerApproval(_Record):
    folder: str
    name: str
    digest: str


class _ApprovalsFile(_Record):
    approved: list[ServerApproval] = []


class Approvals(_StateFile[_ApprovalsFile]):
    """The servers of projects that the user has approved."""

    name = APPROVALS_NAME
    _empty = _ApprovalsFile()
    _consequence = "Until this is fixed, no MCP server of a project runs."

    def read(self) -> tuple[ServerApproval, ...]:
        """Return all approvals. Raises SettingsError if the file is unusable."""
        return tuple(self._load().approved)

    def approve(self, server: OfferedServer) -> None:
        """Approve a server until its entry changes. Raises SettingsError if the approval cannot be stored."""
        added = _build_approval(server)

        def add(file: _ApprovalsFile) -> _ApprovalsFile:
            others = [each for each in file.approved if (each.folder, each.name) != (added.folder, added.name)]
            return _ApprovalsFile(approved=[*others, added][-_MAX_APPROVALS:])

        self._change(add)


def is_approved(server: OfferedServer, approvals: tuple[ServerApproval, ...]) -> bool:
    return _build_approval(server) in approvals


def is_changed(server: OfferedServer, approvals: tuple[ServerApproval, ...]) -> bool:
    """Return True if the user has approved another entry with this name in the same folder."""
    names = {(each.folder, each.name) for each in approvals if each.digest != server.digest}
    return (server.folder, server.config.name) in names and not is_approved(server, approvals)


def _build_approval(server: OfferedServer) -> ServerApproval:
    return ServerApproval(folder=server.folder, name=server.config.name, digest=server.digest)


class ServerConsent:
    """The consent of one process to offered servers. The answer no lasts until the process exits."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._answers: dict[ServerApproval, bool] = {}
        # Without the lock, two turns that start at the same time could ask the same question twice.
        self._question_lock = asyncio.Lock()

    async def select_servers(
        self, offered: Sequence[OfferedServer], ask: Ask, *, is_trusted: Callable[[str], bool]
    ) -> tuple[tuple[ServerConfig, ...], tuple[str, ...]]:
        """Return the servers that may run, with notices.

        Asks about each server in a trusted folder that is new or whose entry has changed.
        """
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
            pending = [server for server in usable if not is_approved(server, approvals)]
            new = [server for server in pending if _build_approval(server) not in self._answers]
            notices += await self._ask_all(new, approvals, ask)
        refused = [server for server in pending if not self._answers.get(_build_approval(server))]
        return tuple(server.config for server in usable if server not in refused), tuple(notices)

    async def _ask_all(
        self, new: Sequence[OfferedServer], approvals: tuple[ServerApproval, ...], ask: Ask
    ) -> list[str]:
        """Ask about the servers one by one, until the user refuses the rest. Return notices."""
        notices: list[str] = []
        for number, server in enumerate(new):
            options = (USE, NOT_NOW, NONE_OF_THEM) if new[number + 1 :] else (USE, NOT_NOW)
            question = _build_question(server, is_changed=is_changed(server, approvals))
            answer = NONE_OF_THEM if number >= _MAX_QUESTIONS else await ask(question, options)
            if answer is None or answer == NONE_OF_THEM:
                self._answers |= dict.fromkeys(map(_build_approval, new[number:]), False)
                if answer is None or number >= _MAX_QUESTIONS:
                    names = ", ".join(each.config.name for each in new[number:])
                    notices.append(f"MCP servers that you did not approve are off: {names}. {_HINT}")
                break
            self._answers[_build_approval(server)] = answer == USE
            if answer == USE:
                try:
                    await asyncio.to_thread(self._approvals.approve, server)
                except SettingsError as error:
                    name = server.config.name
                    notices.append(f"{error} The MCP server `{name}` is approved until this server exits.")
        return notices


def _build_question(server: OfferedServer, *, is_changed: bool) -> str:
    changed = " Its entry changed since you approved it." if is_changed else ""
    first = f"Use the MCP server `{server.config.name}`, which {server.place} names?{changed}"
    warning = "It runs with your permissions and can send data to other machines." if server.config.command else ""
    return escape_invisible("\n".join(filter(None, (first, server.description, warning))))


@dataclass(frozen=True, slots=True)
class ToolPin:
    """The comparison of a listed tool with its pin.

    `pinned_hash` is None if there is no pin. `pinned_definition` is the beginning of the accepted definition as JSON
    lines, for showing the difference.
    """

    state: PinState
    hash: str
    pinned_hash: str | None = None
    pinned_definition: str = ""


@dataclass(frozen=True, slots=True)
class PinReport:
    """The comparison of a server and its listed tools with the pins.

    `server` compares the fingerprints of the command line or URL. A tool may be offered to a model only if `allows`
    returns True. `removed` lists accepted tools that the server no longer lists.
    """

    name: str
    server: PinState
    fingerprint: str
    pinned_fingerprint: str | None
    tools: Mapping[str, ToolPin] = field(hash=False)
    removed: tuple[str, ...] = ()

    def allows(self, tool: str) -> bool:
        """Return True if the user has accepted the tool and the server as they are now."""
        pin = self.tools.get(tool)
        return self.server == "same" and pin is not None and pin.state == "same"

    def needs_question(self, tool: str) -> bool:
        """Return True if the tool is new, so that the user can accept it when the model first calls it."""
        pin = self.tools.get(tool)
        return self.server != "changed" and pin is not None and pin.state == "new"

    def build_notices(self) -> tuple[str, ...]:
        """Return sentences for the user about everything that changed since it was accepted."""
        fix = f"Run `thinklsp mcp pin {self.name}` to see the difference and accept it."
        if self.server == "changed":
            hashes = _show_hashes(self.pinned_fingerprint, self.fingerprint)
            text = f"The command line or URL of the MCP server `{self.name}` changed since you accepted it ({hashes})."
            return (f"{text} Its tools are off. {fix}",)
        notices = [
            f"The tool `{to_one_line(name[:100])}` of the MCP server `{self.name}` changed since you accepted it "
            f"({_show_hashes(pin.pinned_hash, pin.hash)}). It is off. {fix}"
            for name, pin in self.tools.items()
            if pin.state == "changed"
        ]
        if self.removed:
            names = ", ".join(f"`{to_one_line(name[:100])}`" for name in self.removed[:10])
            more = f" and {len(self.removed) - 10} more" if len(self.removed) > 10 else ""
            notices.append(f"The MCP server `{self.name}` no longer has the tools {names}{more}.")
        return tuple(notices)


class _ToolRecord(_Record):
    """A pinned tool. Earlier versions also wrote `content`, a hash without the name."""

    hash: str
    definition: str = ""
    content: str = ""


class _ServerRecord(_Record):
    fingerprint: str
    tools: dict[str, _ToolRecord]


class _PinsFile(_Record):
    """The content of the file. The key of a server contains its source and its name."""

    version: Literal[1]
    servers: dict[str, list[_ServerRecord]]


class Pins(_StateFile[_PinsFile]):
    """The tools that the user has accepted."""

    name = PINS_NAME
    _empty = _PinsFile(version=1, servers={})
    _consequence = "Until this is fixed, no tool of an MCP server runs."
    _max_bytes = 16_000_000

    def check(self, server: ServerConfig, tools: Sequence[ListedTool]) -> PinReport:
        """Compare a server and its tools with the pins. Raises SettingsError if the pins cannot be read."""
        records = self._load().servers.get(_build_key(server), [])
        same = next((record for record in records if record.fingerprint == server.fingerprint), None)
        record = same or (records[-1] if records else None)
        pinned = record.tools if record is not None else {}
        hashes = _hash_tools(tools)
        return PinReport(
            server.name,
            "new" if record is None else "same" if same is not None else "changed",
            server.fingerprint,
            None if record is None else record.fingerprint,
            {name: _compare(value, pinned.get(name)) for name, value in sorted(hashes.items())},
            tuple(sorted(pinned.keys() - hashes.keys())),
        )

    def accept(self, server: ServerConfig, tools: Sequence[ListedTool], *, replace: bool = False) -> None:
        """Pin the server and these tools as they are now.

        Other tools that were accepted for the same command line or URL stay accepted, unless `replace` is true. The
        servers of two projects may have the same name, so their records are kept side by side. Raises SettingsError.
        """
        hashes = _hash_tools(tools)
        added = {
            tool.name: _ToolRecord(hash=hashes[tool.name], definition=format_definition(tool))
            for tool in tools
            if tool.name in hashes
        }
        key = _build_key(server)

        def add(file: _PinsFile) -> _PinsFile:
            records = file.servers.get(key, [])
            existing = next((record for record in records if record.fingerprint == server.fingerprint), None)
            kept = existing.tools if existing is not None and not replace else {}
            others = [] if server.source == "user" else [record for record in records if record is not existing]
            updated = _ServerRecord(fingerprint=server.fingerprint, tools={**kept, **added})
            return _PinsFile(version=1, servers={**file.servers, key: [*others, updated][-_MAX_RECORDS:]})

        self._change(add)


def format_first_sight(tool: ListedTool) -> str:
    """Return the beginning of a description for the question to the user, with invisible characters made visible."""
    text = tool.description or tool.title
    shown = escape_invisible(text[:_MAX_FIRST_SIGHT]).strip()
    return f"{shown} […]" if len(text) > _MAX_FIRST_SIGHT else shown


def format_definition(tool: ListedTool) -> str:
    """Return the definition of a tool as lines of ASCII JSON, in which invisible characters are escaped."""
    if hash_tool(tool) is None:
        return "The definition is nested too deeply to be shown."
    return json.dumps(list_content(tool), sort_keys=True, indent=1)[:_MAX_DEFINITION]


def _build_key(server: ServerConfig) -> str:
    return f"{server.source}:{server.name}"


def _hash_tools(tools: Iterable[ListedTool]) -> dict[str, str]:
    """Return the hash of each tool. Tools that cannot be used are left out, and so never count as accepted.

    A server may list several tools of one name. The hash then covers all of them.
    """
    hashes: dict[str, set[str]] = {}
    for tool in tools:
        if (value := hash_tool(tool)) is not None and is_usable_tool_name(tool.name):
            hashes.setdefault(tool.name, set()).add(value)
    return {
        name: next(iter(values)) if len(values) == 1 else compute_digest(sorted(values))
        for name, values in hashes.items()
    }


def _compare(value: str, pinned: _ToolRecord | None) -> ToolPin:
    if pinned is None:
        return ToolPin("new", value)
    return ToolPin("same" if pinned.hash == value else "changed", value, pinned.hash, pinned.definition)


def _show_hashes(pinned: str | None, present: str) -> str:
    return f"accepted {(pinned or '')[:16]}, now {present[:16]}"
