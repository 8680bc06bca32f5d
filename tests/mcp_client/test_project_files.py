"""The MCP servers of a project: what is offered, which variables have a value, and what is refused with a sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.settings.test_sources import SECRET, user
from thinklsp.mcp_client.server_entries import Offers, read_project_servers
from thinklsp.settings.user_file import UserSettings
from thinklsp.workspace.paths import Root


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Root]:
    (tmp_path / "project" / ".vscode").mkdir(parents=True)
    with Root(str(tmp_path / "project")) as root:
        yield root


def mine(tmp_path: Path, toml: str = "", **environment: str) -> UserSettings:
    return user(f"# \n{toml}", tmp_path, **environment)


def write(root: Root, entries: Any, name: str = ".mcp.json", key: str = "mcpServers") -> None:
    Path(root.path, name).write_text(entries if isinstance(entries, str) else json.dumps({key: entries}))


def read(root: Root, settings: UserSettings) -> Offers:
    return read_project_servers([root], settings)


def test_both_files_are_read_and_servers_are_sorted(project: Root, tmp_path: Path) -> None:
    write(project, {"z": {"command": "z", "args": ["a b"], "env": {"PORT": 5, "A": "x"}}})
    text = '{ // comment\n "servers": {"a": {"type": "http", "url": "https://x/mcp", "headers": {"A": "b"}},},\n}'
    write(project, text, ".vscode/mcp.json")
    found = read(project, mine(tmp_path, "[mcp]\nsandbox = true"))
    assert found[1] == ()
    far, near = found[0]
    assert (far.config.name, far.config.url, far.config.headers) == ("a", "https://x/mcp", {"A": "b"})
    assert (near.config.command, near.config.cwd) == (("z", "a b"), project.path)
    assert near.config.env == {"PORT": "5", "A": "x"}
    assert (near.config.is_sandboxed, far.config.is_sandboxed) == (True, False)
    assert {server.config.source for server in found[0]} == {"project"}
    assert {server.folder for server in found[0]} == {project.path}
    # A value in the file can change what the program does, so the description shows it.
    assert near.description.splitlines() == [
        "Command: z 'a b'",
        f"Working directory: {project.path}",
        'Environment variables: A="x", PORT="5"',
    ]
    assert (near.place, far.place) == ("`.mcp.json`", "`.vscode/mcp.json`")


def test_variables_have_values_only_if_the_user_lists_them(project: Root, tmp_path: Path) -> None:
    environment = {"LISTED": "v9v", "EMPTY": "", "ANTHROPIC_API_KEY": SECRET}
    settings = mine(tmp_path, '[mcp]\nproject_env = ["LISTED", "EMPTY", "UNSET"]', **environment)
    cases = {
        "${LISTED}": "v9v",
        "a${LISTED}b${env:LISTED}": "av9vbv9v",
        "${EMPTY}": "",
        "${EMPTY:-two}": "two",
        "${UNSET:-a:-b}": "a:-b",
        "${ANTHROPIC_API_KEY:-none}": "none",
        "${workspaceFolder}/x": f"{project.path}/x",
        "$LISTED $(id) `id`": "$LISTED $(id) `id`",
    }
    for text, value in cases.items():
        write(project, {"a": {"command": "x", "args": [text]}})
        found = read(project, settings)
        assert found[1] == ()
        assert [server.config.command[1] for server in found[0]] == [value], text
        assert "v9v" not in found[0][0].description
    for text, sentence in {
        "${ANTHROPIC_API_KEY}": "add its name to `project_env`",
        "${UNSET}": "the variable `UNSET`, which is not set",
        "${input:token}": "`${input:token}` is not supported",
        "${command:x}": "`${command:x}` is not supported",
        "${}": "`${}` is not supported",
        "${a\u202eb}": "`${a?b}` is not supported",
    }.items():
        write(project, {"a": {"url": "https://x", "headers": {"A": text}}, "b": {"command": "x"}})
        found = read(project, settings)
        assert [server.config.name for server in found[0]] == ["b"], text
        assert sentence in found[1][0]
        assert SECRET not in found[1][0]


def test_a_value_is_not_expanded_again(project: Root, tmp_path: Path) -> None:
    settings = mine(tmp_path, '[mcp]\nproject_env = ["A"]', A="${B}", B=SECRET)
    write(project, {"a": {"command": "x", "args": ["${A}"]}})
    assert read(project, settings)[0][0].config.command == ("x", "${B}")


WRONG: dict[str, tuple[Any, str]] = {
    "no object": (5, "it must be an object"),
    "nothing": ({}, "either `command` or `url`"),
    "both": ({"command": "x", "url": "https://x"}, "either `command` or `url`"),
    "a file of variables": ({"command": "x", "envFile": ".env"}, "`envFile` is not supported"),
    "a helper": ({"url": "https://x", "headersHelper": "x"}, "`headersHelper` is not supported"),
    "events": ({"type": "sse", "url": "https://x"}, "the type `sse` is not supported"),
    "a socket": ({"type": "ws", "url": "https://x"}, "the type `ws` is not supported"),
    "another type": ({"type": "http", "command": "x"}, "its `type` does not fit"),
    "a list for a program": ({"command": ["x"]}, "`command` must be a text"),
    "an empty program": ({"command": ""}, "its command is empty"),
    "a lone surrogate": ({"command": "x", "args": ["\ud800"]}, "a character that no program can receive"),
    "a number for an argument": ({"command": "x", "args": [5]}, "`args` must be a list of texts"),
    "a list of variables": ({"command": "x", "env": ["A=b"]}, "`env` must be an object"),
    "a null for a value": ({"command": "x", "env": {"A": None}}, "`env` must be an object of texts"),
    "a name of a variable": ({"command": "x", "env": {"A=": "b"}}, "the variable `A=` cannot be set"),
    "a relative folder": ({"command": "x", "cwd": "src"}, "`cwd` must be an absolute path"),
    "no certificate": ({"url": "http://example.com"}, "`url` must use https"),
    "a line break": ({"url": "https://x", "headers": {"A": "b\r\nC: d"}}, "characters that cannot be sent"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_entry_is_off_with_a_sentence(project: Root, tmp_path: Path, case: str) -> None:
    entry, sentence = WRONG[case]
    write(project, {"bad": entry, "good": {"command": "x"}})
    found = read(project, mine(tmp_path))
    assert [server.config.name for server in found[0]] == ["good"]
    [notice] = found[1]
    assert notice.startswith("The MCP server `bad` in `.mcp.json` is off: ")
    assert sentence in notice


FILES = {
    "no JSON": "{",
    "a list": "[]",
    "a list of servers": '{"mcpServers": []}',
    "not UTF-8": b"\xff",
    "deep": '{"mcpServers": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}",
    "large": " " * 300_000 + "{}",
    "long number": '{"mcpServers": {"a": ' + "9" * 5_000 + "}}",
}


@pytest.mark.parametrize("case", FILES)
def test_a_wrong_file_is_one_sentence(project: Root, tmp_path: Path, case: str) -> None:
    data = FILES[case]
    Path(project.path, ".mcp.json").write_bytes(data if isinstance(data, bytes) else data.encode())
    write(project, {"a": {"command": "x"}}, ".vscode/mcp.json", "servers")
    found = read(project, mine(tmp_path))
    assert [server.config.name for server in found[0]] == ["a"]
    [notice] = found[1]
    assert notice.startswith("`.mcp.json` ")
    assert "ignored" in notice


def test_a_link_out_of_the_folder_is_refused(project: Root, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    os.symlink(tmp_path / "other.json", Path(project.path, ".mcp.json"))
    found = read(project, mine(tmp_path))
    assert found[0] == ()
    assert "leads through a symbolic link" in found[1][0]


def test_the_users_own_server_wins_with_a_notice(project: Root, tmp_path: Path) -> None:
    write(project, {name: {"command": "theirs"} for name in ("on", "off", "wrong", "new")})
    toml = '[mcp.servers.on]\ncommand = "x"\n[mcp.servers.off]\nenabled = false\n[mcp.servers.wrong]\n'
    found = read(project, mine(tmp_path, toml))
    assert [server.config.name for server in found[0]] == ["new"]
    assert len(found[1]) == 3
    assert all("your config.toml has a server of that name" in notice for notice in found[1])


def test_the_first_of_two_servers_with_one_name_is_offered(project: Root, tmp_path: Path) -> None:
    write(project, {"a": {"command": "x"}, "b": {"command": "x"}})
    write(project, {"a": {"command": "x"}, "b": {"command": "y"}}, ".vscode/mcp.json", "servers")
    found = read(project, mine(tmp_path))
    assert [server.config.command for server in found[0]] == [("x",), ("x",)]
    [notice] = found[1]
    assert "`b` in `.vscode/mcp.json` is not used, because `.mcp.json` has a server of that name" in notice


def test_the_digest_changes_with_every_part_of_an_entry(project: Root, tmp_path: Path) -> None:
    entry: dict[str, Any] = {"command": "x", "args": ["a", "b"], "env": {"A": "1", "B": "2"}}
    changes: list[dict[str, Any]] = [
        {}, {"command": "y"}, {"args": ["b", "a"]}, {"args": ["a b"]}, {"env": {"A": "2", "B": "2"}}, {"cwd": "/"},
        {"description": "x"}, {"args": ["a", "b\u200b"]}, {"args": ["a", "b", "\u0065\u0301"]},
        {"args": ["a", "b", "\u00e9"]},
    ]  # fmt: skip
    digests = set()
    for change in changes:
        write(project, {"a": entry | change})
        digests.add(read(project, mine(tmp_path))[0][0].digest)
    assert len(digests) == len(changes)
    # The order of keys and the white space do not matter.
    reordered = dict(reversed(entry.items()))
    Path(project.path, ".mcp.json").write_text(json.dumps({"mcpServers": {"a": reordered}}, indent=4))
    assert read(project, mine(tmp_path))[0][0].digest in digests


def test_more_servers_than_the_limit_are_named(project: Root, tmp_path: Path) -> None:
    write(project, {f"s{number}": {"command": "x"} for number in range(40)})
    found = read(project, mine(tmp_path))
    assert len(found[0]) == 32
    assert found[1] == ("`.mcp.json` names 40 MCP servers. Only the first 32 are offered.",)


def test_a_disabled_entry_is_not_offered(project: Root, tmp_path: Path) -> None:
    write(project, {"a": {"command": "x", "disabled": True}})
    assert read(project, mine(tmp_path)) == ((), ())
