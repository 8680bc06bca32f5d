"""The pins of MCP servers: what the user has accepted of each server and of its tools.

A server could change a tool after the user has accepted it. So the hash of the command line or URL, and of everything
that the server says about a tool, must stay the same. The file `mcp-pins.json` is in the state folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from thinklsp.core.errors import SettingsError, ThinkLspError
from thinklsp.core.json_codec import read_json
from thinklsp.core.text_safety import escape_invisible, to_one_line
from thinklsp.mcp_client.listed_tool import ListedTool
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.mcp_client.tool_hashes import hash_content, hash_tool, list_content
from thinklsp.mcp_client.tool_names import is_usable_tool_name
from thinklsp.settings.private_paths import lock_folder, make_private, read_text, replace_file

PINS_NAME = "mcp-pins.json"
_MAX_FILE_BYTES = 16_000_000
_MAX_RECORDS = 20
_MAX_DEFINITION = 8_000
_MAX_FIRST_SIGHT = 400

PinState = Literal["new", "same", "changed"]


class PinsUnusable(ThinkLspError):
    """The error raised if the pins cannot be read or written. No tool of any MCP server may then run."""


@dataclass(frozen=True, slots=True)
class ToolPin:
    """The comparison of a listed tool with its pin.

    `pinned_hash` is None if there is no pin. `renamed_from` is the name of a removed tool that had the same content.
    `pinned_definition` is the beginning of the accepted definition as JSON lines, for showing the difference.
    """

    state: PinState
    hash: str
    pinned_hash: str | None = None
    renamed_from: str | None = None
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
        notices += [
            f"The MCP server `{self.name}` renamed its tool `{to_one_line(pin.renamed_from[:100])}` to "
            f"`{to_one_line(name[:100])}`. The tool counts as new."
            for name, pin in self.tools.items()
            if pin.renamed_from is not None
        ]
        if self.removed:
            names = ", ".join(f"`{to_one_line(name[:100])}`" for name in self.removed[:10])
            more = f" and {len(self.removed) - 10} more" if len(self.removed) > 10 else ""
            notices.append(f"The MCP server `{self.name}` no longer has the tools {names}{more}.")
        return tuple(notices)


class _ToolRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    hash: str
    content: str
    definition: str = ""


class _ServerRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fingerprint: str
    tools: dict[str, _ToolRecord]


class _PinsFile(BaseModel):
    """The content of the file. The key of a server contains its source and its name."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Literal[1]
    servers: dict[str, list[_ServerRecord]]


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins in a state folder. The file is read on every call, because another process may change it."""

    state_folder: str
    lock_timeout: float = 5.0

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
        removed = tuple(sorted(pinned.keys() - hashes.keys()))
        removed_contents = {pinned[name].content: name for name in reversed(removed)}
        contents = {tool.name: hash_content(tool) or "" for tool in tools if tool.name not in pinned}
        return PinReport(
            server.name,
            "new" if record is None else "same" if same is not None else "changed",
            server.fingerprint,
            None if record is None else record.fingerprint,
            {
                name: _compare(value, pinned.get(name), removed_contents.get(contents.get(name, "")))
                for name, value in sorted(hashes.items())
            },
            removed,
        )

    def accept(self, server: ServerConfig, tools: Sequence[ListedTool], *, replace: bool = False) -> None:
        """Pin the server and these tools as they are now.

        Other tools that were accepted for the same command line or URL stay accepted, unless `replace` is true. Raises
        PinsUnusable.
        """
        hashes = _hash_tools(tools)
        added = {
            tool.name: _ToolRecord(
                hash=hashes[tool.name], content=hash_content(tool) or "", definition=format_definition(tool)
            )
            for tool in tools
            if tool.name in hashes
        }
        try:
            make_private(self.state_folder)
            with lock_folder(self.state_folder, self.lock_timeout):
                file = self._read()
                records = _update_records(file.servers.get(_build_key(server), []), server, added, replace=replace)
                self._write({**file.servers, _build_key(server): records})
        except OSError as error:
            raise PinsUnusable(f"{self.path} cannot be written: {error.strerror}. {_CONSEQUENCE}") from None

    def forget(self, server: ServerConfig) -> None:
        """Remove all pins of a server, so that it counts as new. Raises PinsUnusable."""
        try:
            make_private(self.state_folder)
            with lock_folder(self.state_folder, self.lock_timeout):
                servers = self._read().servers
                if _build_key(server) in servers:
                    self._write({key: value for key, value in servers.items() if key != _build_key(server)})
        except OSError as error:
            raise PinsUnusable(f"{self.path} cannot be written: {error.strerror}. {_CONSEQUENCE}") from None

    def _read(self) -> _PinsFile:
        try:
            text = read_text(self.path, PINS_NAME, _MAX_FILE_BYTES)
            if not text and not os.path.lexists(self.path):
                return _PinsFile(version=1, servers={})
            return _PinsFile.model_validate(read_json(text))
        except SettingsError as error:
            raise PinsUnusable(f"{error} {_CONSEQUENCE}") from None
        except (ValidationError, ValueError):
            fix = "Delete it to be asked again about every tool"
            raise PinsUnusable(f"{self.path} is damaged. {fix}. {_CONSEQUENCE}") from None

    def _write(self, servers: Mapping[str, list[_ServerRecord]]) -> None:
        file = _PinsFile(version=1, servers=dict(servers))
        text = json.dumps(file.model_dump(), sort_keys=True, indent=1)
        if len(text) >= _MAX_FILE_BYTES:
            raise PinsUnusable(f"{self.path} would become too large. Delete it to be asked again about every tool.")
        replace_file(self.path, text + "\n")


_CONSEQUENCE = "Until this is fixed, no tool of an MCP server runs."


def format_first_sight(tool: ListedTool) -> str:
    """Return the beginning of a description for the question to the user, with invisible characters made visible."""
    text = tool.description or tool.title
    shown = escape_invisible(text[:_MAX_FIRST_SIGHT]).strip()
    return f"{shown} […]" if len(text) > _MAX_FIRST_SIGHT else shown


def format_definition(tool: ListedTool) -> str:
    """Return the definition of a tool as lines of ASCII JSON, in which invisible characters are escaped."""
    if hash_content(tool) is None:
        return "The definition is nested too deeply to be shown."
    return json.dumps(list_content(tool), sort_keys=True, indent=1)[:_MAX_DEFINITION]


def _build_key(server: ServerConfig) -> str:
    return f"{server.source}:{server.name}"


def _hash_tools(tools: Iterable[ListedTool]) -> dict[str, str]:
    """Return the hash of each tool. Tools that cannot be used are left out, and so never count as accepted.

    A server may list several tools of one name. The hash then covers all of them.
    """
    hashes: dict[str, list[str]] = {}
    for tool in tools:
        value = hash_tool(tool)
        if value is not None and is_usable_tool_name(tool.name):
            hashes.setdefault(tool.name, []).append(value)
    combined: dict[str, str] = {}
    for name, values in hashes.items():
        distinct = sorted(set(values))
        combined[name] = distinct[0] if len(distinct) == 1 else sha256(" ".join(distinct).encode()).hexdigest()
    return combined


def _compare(value: str, pinned: _ToolRecord | None, renamed_from: str | None) -> ToolPin:
    if pinned is None:
        return ToolPin("new", value, renamed_from=renamed_from)
    state: PinState = "same" if pinned.hash == value else "changed"
    return ToolPin(state, value, pinned.hash, pinned_definition=pinned.definition)


def _update_records(
    records: Sequence[_ServerRecord], server: ServerConfig, added: Mapping[str, _ToolRecord], *, replace: bool
) -> list[_ServerRecord]:
    """Return the records of a server with the tools added to the record of its present fingerprint.

    The servers of two projects may have the same name, so their records are kept side by side. The user's own server
    has one record.
    """
    existing = next((record for record in records if record.fingerprint == server.fingerprint), None)
    kept = existing.tools if existing is not None and not replace else {}
    others = [] if server.source == "user" else [record for record in records if record is not existing]
    updated = _ServerRecord(fingerprint=server.fingerprint, tools={**kept, **added})
    return [*others, updated][-_MAX_RECORDS:]


def _show_hashes(pinned: str | None, present: str) -> str:
    return f"accepted {(pinned or '')[:16]}, now {present[:16]}"
