"""The file `permissions.toml`, which lists the commands that the user has allowed and the folders that the user trusts.

The file is in the same folder as the user's config.toml. Users can edit the file, and their comments are kept.

    [commands]
    allow = [["python", "-m", "pytest"]]
    deny = []
    exact = [["ls", "-l"]]

    [[trusted]]
    folder = "/home/me/project"
    digest = "…"

    [[mcp]]
    server = "time"
    tool = "get_current_time"
    pin = "…"

The rules in `allow` and `deny` match commands that begin with these words. The rules in `exact` match only the complete
command. Deny rules take precedence.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import tomlkit
from tomlkit.exceptions import TOMLKitError

from thinklsp.core.errors import SettingsError
from thinklsp.settings.config_files import lock_folder, make_private, read_text, read_toml, replace_file
from thinklsp.settings.user_file import CommandRules, Section, parse_section

_FILE_NAME = "permissions.toml"
_FILE_COMMENT = "Commands that you allowed while working with thinklsp. You can change this file; deny wins over allow."

TomlDocument = tomlkit.TOMLDocument
TomlPart = tuple[tomlkit.items.Key | None, tomlkit.items.Item]


class TrustedFolder(Section):
    """A trusted folder.

    `digest` is a hash of the folder's instruction files or skills. If they change, the user must consent again. Skills
    have an entry of their own, whose `folder` ends in `{.agents,.claude}/skills`.
    """

    folder: str
    digest: str


class AllowedMcpTool(Section):
    """A tool of an MCP server that runs without a question.

    `pin` is a hash of the tool's definition. If the server changes the tool, the user must consent again.
    """

    server: str
    tool: str
    pin: str


class RememberedPermissions(Section):
    commands: CommandRules = CommandRules()
    trusted: tuple[TrustedFolder, ...] = ()
    mcp: tuple[AllowedMcpTool, ...] = ()


@dataclass(frozen=True, slots=True)
class PermissionsFile:
    """The permissions file at `path`. It is read on every call, because the user or another server may change it.

    `lock_timeout` is the number of seconds to wait while another server is writing the file.
    """

    path: str
    lock_timeout: float = 5.0

    @staticmethod
    def locate_beside(config: str) -> PermissionsFile:
        """Return the permissions file in the same folder as the user's file `config`."""
        return PermissionsFile.locate_in(os.path.dirname(config))

    @staticmethod
    def locate_in(folder: str) -> PermissionsFile:
        return PermissionsFile(os.path.join(folder, _FILE_NAME))

    def read(self) -> RememberedPermissions:
        """Read the permissions file.

        Raises SettingsError if the file cannot be read, trusted or parsed. In this case, no command is allowed.
        """
        return _validate(read_toml(self.path, _FILE_NAME))

    def allow(self, kind: Literal["allow", "exact"], argv: Sequence[str]) -> None:
        """Allow commands that begin with these words, or this exact command, to run. Raises SettingsError."""
        self._change(lambda document: _add_rule(document, kind, argv))

    def add_trusted_folder(self, folder: str, digest: str) -> None:
        """Trust the instruction files or skills of a folder until their digest changes. Raises SettingsError."""
        self._change(lambda document: _put_entry(document, "trusted", {"folder": folder}, {"digest": digest}))

    def allow_mcp_tool(self, server: str, tool: str, pin: str) -> None:
        """Allow a tool of an MCP server to run without asking until its pin changes. Raises SettingsError."""
        self._change(lambda document: _put_entry(document, "mcp", {"server": server, "tool": tool}, {"pin": pin}))

    def _change(self, change: Callable[[TomlDocument], None]) -> None:
        # The file may be a symbolic link, because users often link their configuration files. Write to its target
        # instead of replacing the link.
        path = os.path.realpath(self.path)
        folder = os.path.dirname(path)
        try:
            make_private(folder)
            with lock_folder(folder, self.lock_timeout):
                replace_file(path, _apply_change(read_text(path, _FILE_NAME), change))
        except OSError as error:
            raise SettingsError("permissions", f"Your {_FILE_NAME} cannot be written to: {error.strerror}.") from None


def _validate(raw: object) -> RememberedPermissions:
    return parse_section(RememberedPermissions, raw, f"Your {_FILE_NAME}")


def _apply_change(text: str, change: Callable[[TomlDocument], None]) -> str:
    try:
        # Do not overwrite an invalid file, because this would lose rules. Only the user can fix it.
        _validate(tomllib.loads(text))
        document = tomlkit.parse(text or f"# {_FILE_COMMENT}\n")
        change(document)
        changed = tomlkit.dumps(document)
        _validate(tomllib.loads(changed))
    except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, AttributeError):
        raise SettingsError("permissions", f"Your {_FILE_NAME} cannot be updated. Fix its mistakes first.") from None
    return changed


def _add_rule(document: TomlDocument, kind: str, argv: Sequence[str]) -> None:
    if "commands" not in document:
        _add_table(document, "commands", tomlkit.table())
    commands = document["commands"]
    if kind not in commands:
        comments = _take_comments(commands)
        commands.append(kind, tomlkit.array())
        commands.value.body.extend(comments)
    rules = commands[kind]
    if list(argv) not in rules.unwrap():
        rules.append(list(argv))


def _put_entry(document: TomlDocument, name: str, key: dict[str, str], values: dict[str, str]) -> None:
    """Set the values of the entry with this key in an array of tables. The entry is added if there is none."""
    if name not in document:
        _add_table(document, name, tomlkit.aot())
    entries = document[name]
    existing = next((entry for entry in entries if all(entry[field] == value for field, value in key.items())), None)
    if existing is not None:
        existing.update(values)
        return
    entry = tomlkit.inline_table() if isinstance(entries, tomlkit.items.Array) else tomlkit.table()
    entry.update(key | values)
    comments = _take_comments(entries[-1]) if entries and isinstance(entries, tomlkit.items.AoT) else []
    entries.append(entry)
    entry.value.body.extend(comments)


def _add_table(document: TomlDocument, name: str, table: tomlkit.items.Item) -> None:
    """Add a table at the end, and a blank line before it if the last line is a comment."""
    if tomlkit.dumps(document).rstrip().rpartition("\n")[2].lstrip().startswith("#"):
        document.add(tomlkit.nl())
    document[name] = table


def _take_comments(table: tomlkit.items.AbstractTable) -> list[TomlPart]:
    """Remove the comments and blank lines at the end of a table, which may describe the next table."""
    body = table.value.body
    comments: list[TomlPart] = []
    while body and body[-1][0] is None:
        comments.insert(0, body.pop())
    return comments
