"""What the user has accepted: the MCP servers of projects and clients, and each server's tools as they were.

An approval applies to a folder, a name and the digest of an entry, so a changed entry needs a new one. A server could
also change a tool after the user has accepted it. So the hash of the command line or URL, and of everything that the
server says about a tool, is pinned. Both files are in the state folder, and are read on every call, because another
process may change them. If a file cannot be read, nothing is accepted, and the file is not overwritten.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from thinklsp.core.choices import NOT_NOW
from thinklsp.core.errors import SettingsError, ThinkLspError
from thinklsp.core.json_codec import read_json
from thinklsp.core.text_safety import escape_invisible, to_one_line
from thinklsp.core.tool_type import Ask
from thinklsp.mcp_client.server_config import ListedTool, OfferedServer, ServerConfig, compute_digest
from thinklsp.mcp_client.tool_schemas import hash_tool, is_usable_tool_name, list_content
from thinklsp.settings.config_files import lock_folder, make_private, read_text, replace_file

APPROVALS_NAME, PINS_NAME = "mcp-approvals.json", "mcp-pins.json"
USE, NONE_OF_THEM = "Use it", "None of them now"
_HINT = "`thinklsp mcp approve NAME` approves one."
_CONSEQUENCE = "Until this is fixed, no tool of an MCP server runs."
_MAX_APPROVALS = 1_000
_MAX_QUESTIONS = 8
_MAX_PINS_BYTES = 16_000_000
_MAX_RECORDS = 20
_MAX_DEFINITION = 8_000
_MAX_FIRST_SIGHT = 400
_LOCK_SECONDS = 5.0

PinState = Literal["new", "same", "changed"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ServerApproval(_Record):
    folder: str
    name: str
    digest: str


class _ApprovalsFile(_Record):
    approved: list[ServerApproval] = []


@contextmanager
def _lock(state_folder: str, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    """Keep other processes from writing to the state folder. Raises OSError."""
    make_private(state_folder)
    with lock_folder(state_folder, seconds):
        yield


@dataclass(frozen=True, slots=True)
class Approvals:
    """The servers of projects that the user has approved, in the file of a state folder."""

    state_folder: str

    @property
    def path(self) -> str:
        return os.path.join(self.state_folder, APPROVALS_NAME)

    def read(self) -> tuple[ServerApproval, ...]:
        """Return all approvals. Raises SettingsError if the file cannot be read, trusted or parsed."""
        text = read_text(self.path, APPROVALS_NAME)
        try:
            return tuple(_ApprovalsFile.model_validate(json.loads(text)).approved) if text else ()
        except (ValueError, RecursionError, ValidationError):
            problem = f"Your {APPROVALS_NAME} is damaged, so no MCP server of a project is approved."
            raise SettingsError("mcp", f"{problem} Delete {self.path} to start again.") from None

    def approve(self, server: OfferedServer) -> None:
        """Approve a server until its entry changes. Raises SettingsError if the approval cannot be stored."""
        added = _build_approval(server)
        try:
            with _lock(self.state_folder):
                others = [each for each in self.read() if (each.folder, each.name) != (added.folder, added.name)]
                approved = [each.model_dump() for each in (*others, added)][-_MAX_APPROVALS:]
                replace_file(self.path, json.dumps({"approved": approved}, indent=1) + "\n")
        except OSError as error:
            raise SettingsError("mcp", f"Your {APPROVALS_NAME} cannot be written to: {error.strerror}.") from None


def is_approved(server: OfferedServer, approvals: tuple[ServerApproval, ...]) -> bool:
    return _build_approval(server) in approvals


def is_changed(server: OfferedServer, approvals: tuple[ServerApproval, ...]) -> bool:
    """Return True if the user has approved another entry with this name in the same folder."""
    names = {(each.folder, each.name) for each in approvals if each.digest != server.digest}
    return (server.folder, server.config.name) in names and not is_approved(server, approvals)


def _build_approval(server: OfferedServer) -> ServerApproval:
    return ServerApproval(folder=server.folder, name=server.config.name, digest=server.digest)


class ServerConsent:
    """The consent of one process to offered servers. The answer no lasts until the process exits.

    `show_text` makes invisible characters visible.
    """

    def __init__(self, approvals: Approvals, show_text: Callable[[str], str]) -> None:
        self._approvals = approvals
        self._show_text = show_text
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
            new = [
                server
                for server in usable
                if not is_approved(server, approvals) and _build_approval(server) not in self._answers
            ]
            notices += await self._ask_all(new, approvals, ask)
        chosen = [
            server.config
            for server in usable
            if is_approved(server, approvals) or self._answers.get(_build_approval(server))
        ]
        return tuple(chosen), tuple(notices)

    async def _ask_all(
        self, new: Sequence[OfferedServer], approvals: tuple[ServerApproval, ...], ask: Ask
    ) -> list[str]:
        """Ask about the servers one by one, until the user refuses the rest. Return notices."""
        notices: list[str] = []
        for number, server in enumerate(new):
            options = (USE, NOT_NOW, NONE_OF_THEM) if new[number + 1 :] else (USE, NOT_NOW)
            question = self._build_question(server, is_changed=is_changed(server, approvals))
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

    def _build_question(self, server: OfferedServer, *, is_changed: bool) -> str:
        changed = " Its entry changed since you approved it." if is_changed else ""
        first = f"Use the MCP server `{server.config.name}`, which {server.place} names?{changed}"
        warning = "It runs with your permissions and can send data to other machines." if server.config.command else ""
        return self._show_text("\n".join(filter(None, (first, server.description, warning))))


class PinsUnusable(ThinkLspError):
    """The error raised if the pins cannot be read or written. No tool of any MCP server may then run."""


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


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins in a state folder."""

    state_folder: str
    lock_timeout: float = _LOCK_SECONDS

    @property
    def path(self) -> str:
        return os.path.join(self.state_folder, PINS_NAME)

    def check(self, server: ServerConfig, tools: Sequence[ListedTool]) -> PinReport:
        """Compare a server and its tools with the pins. Raises PinsUnusable if the pins cannot be read."""
        records = self._read().servers.get(_build_key(server), [])
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
        servers of two projects may have the same name, so their records are kept side by side. Raises PinsUnusable.
        """
        hashes = _hash_tools(tools)
        added = {
            tool.name: _ToolRecord(hash=hashes[tool.name], definition=format_definition(tool))
            for tool in tools
            if tool.name in hashes
        }
        try:
            with _lock(self.state_folder, self.lock_timeout):
                servers = self._read().servers
                records = servers.get(_build_key(server), [])
                existing = next((record for record in records if record.fingerprint == server.fingerprint), None)
                kept = existing.tools if existing is not None and not replace else {}
                others = [] if server.source == "user" else [record for record in records if record is not existing]
                updated = _ServerRecord(fingerprint=server.fingerprint, tools={**kept, **added})
                self._write({**servers, _build_key(server): [*others, updated][-_MAX_RECORDS:]})
        except OSError as error:
            raise PinsUnusable(f"{self.path} cannot be written: {error.strerror}. {_CONSEQUENCE}") from None

    def _read(self) -> _PinsFile:
        try:
            text = read_text(self.path, PINS_NAME, _MAX_PINS_BYTES)
            if not text and not os.path.lexists(self.path):
                return _PinsFile(version=1, servers={})
            return _PinsFile.model_validate(read_json(text))
        except SettingsError as error:
            raise PinsUnusable(f"{error} {_CONSEQUENCE}") from None
        except (ValidationError, ValueError):
            fix = "Delete it to be asked again about every tool"
            raise PinsUnusable(f"{self.path} is damaged. {fix}. {_CONSEQUENCE}") from None

    def _write(self, servers: dict[str, list[_ServerRecord]]) -> None:
        text = json.dumps(_PinsFile(version=1, servers=servers).model_dump(), sort_keys=True, indent=1)
        if len(text) >= _MAX_PINS_BYTES:
            raise PinsUnusable(f"{self.path} would become too large. Delete it to be asked again about every tool.")
        replace_file(self.path, text + "\n")


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
