"""The consent to servers of a project: bound to the entry, stored privately, and never assumed."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.settings.test_sources import SECRET, user
from thinklsp.acp.params import NewSessionParams, parse_params
from thinklsp.core.choices import NOT_NOW
from thinklsp.core.errors import SettingsError
from thinklsp.mcp_client.consent import NONE_OF_THEM, USE, Approvals, ServerConsent, is_approved, is_changed
from thinklsp.mcp_client.server_config import OfferedServer, ServerConfig, compute_digest
from thinklsp.mcp_client.server_entries import ClientEntry, offer_client_servers


def offer(name: str = "a", command: str = "x", folder: str = "/project") -> OfferedServer:
    config = ServerConfig(name, (command,), source="project")
    digest = compute_digest({"command": command})
    return OfferedServer(config, "`.mcp.json`", folder, digest, f"Command: {command}")


class User:
    """A user with prepared answers. `questions` contains the questions with their options."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.questions: list[tuple[str, tuple[str, ...]]] = []

    async def ask(self, question: str, options: tuple[str, ...]) -> str | None:
        self.questions.append((question, options))
        return self.answers.pop(0)


@pytest.fixture
def approvals(tmp_path: Path) -> Approvals:
    return Approvals(str(tmp_path / "state"))


def consent(approvals: Approvals) -> ServerConsent:
    return ServerConsent(approvals)


async def select(
    asking: ServerConsent, offered: Sequence[OfferedServer], someone: User, *, trusted: bool = True
) -> tuple[list[str], tuple[str, ...]]:
    configs, notices = await asking.select_servers(offered, someone.ask, is_trusted=lambda _: trusted)
    return [config.name for config in configs], notices


async def test_a_yes_is_kept_until_the_entry_changes(approvals: Approvals) -> None:
    someone = User(USE)
    assert await select(consent(approvals), [offer()], someone) == (["a"], ())
    [(question, options)] = someone.questions
    assert options == (USE, NOT_NOW)
    assert question.splitlines()[:2] == ["Use the MCP server `a`, which `.mcp.json` names?", "Command: x"]
    # Another process does not ask again.
    assert await select(consent(approvals), [offer()], User()) == (["a"], ())
    someone = User(NOT_NOW)
    assert await select(consent(approvals), [offer(command="y")], someone) == ([], ())
    assert "Its entry changed since you approved it." in someone.questions[0][0]
    assert await select(consent(approvals), [offer()], User()) == (["a"], ())


async def test_a_yes_applies_to_one_folder_and_one_name(approvals: Approvals) -> None:
    await select(consent(approvals), [offer()], User(USE))
    for other in (offer(folder="/other"), offer(name="b")):
        someone = User(NOT_NOW)
        assert await select(consent(approvals), [other], someone) == ([], ())
        assert "changed" not in someone.questions[0][0]


async def test_a_no_lasts_until_the_process_exits(approvals: Approvals) -> None:
    asking = consent(approvals)
    assert await select(asking, [offer()], User(NOT_NOW)) == ([], ())
    assert await select(asking, [offer()], User()) == ([], ())
    assert await select(consent(approvals), [offer()], User(USE)) == (["a"], ())


async def test_no_answer_is_a_no_with_a_notice(approvals: Approvals) -> None:
    names, [notice] = await select(consent(approvals), [offer("a"), offer("b")], User(None))
    assert names == []
    assert notice.startswith("MCP servers that you did not approve are off: a, b. ")
    assert approvals.read() == ()


async def test_the_rest_can_be_refused_at_once(approvals: Approvals) -> None:
    offered = [offer(name) for name in "abcd"]
    someone = User(USE, NONE_OF_THEM)
    assert await select(consent(approvals), offered, someone) == (["a"], ())
    assert [options for _, options in someone.questions] == [(USE, NOT_NOW, NONE_OF_THEM)] * 2


async def test_a_flood_of_servers_is_not_a_flood_of_questions(approvals: Approvals) -> None:
    someone = User(*[USE] * 8)
    names, [notice] = await select(consent(approvals), [offer(f"s{n:02}") for n in range(32)], someone)
    assert len(names) == len(someone.questions) == 8
    assert "s08" in notice


async def test_an_untrusted_folder_is_not_even_asked_about(approvals: Approvals) -> None:
    approvals.approve(offer())
    names, [notice] = await select(consent(approvals), [offer()], User(), trusted=False)
    assert names == []
    assert notice == "The folder is not trusted, so its MCP servers are off: a."


async def test_invisible_characters_are_shown(approvals: Approvals) -> None:
    server = replace(offer(), description="Command: rm \u202e-rf")
    someone = User(NOT_NOW)
    await select(consent(approvals), [server], someone)
    assert "<U+202E>" in someone.questions[0][0]
    assert "\u202e" not in someone.questions[0][0]


BROKEN = ["{", "[]", "[" * 100_000, '{"approved": [{"folder": "/project"}]}', '{"approvd": []}', '{"approved": 5}']


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_damaged_file_approves_nothing_and_is_left_alone(approvals: Approvals, number: int) -> None:
    approvals.approve(offer())
    Path(approvals.path).write_text(BROKEN[number])
    names, [notice] = asyncio.run(select(consent(approvals), [offer()], User()))
    assert names == []
    assert "mcp-approvals.json" in notice
    with pytest.raises(SettingsError):
        approvals.approve(offer())
    assert Path(approvals.path).read_text() == BROKEN[number]


async def test_a_file_that_others_can_write_approves_nothing(approvals: Approvals) -> None:
    approvals.approve(offer())
    assert os.stat(approvals.path).st_mode & 0o777 == 0o600
    os.chmod(approvals.path, 0o622)  # noqa: S103 - that is the mistake
    names, [notice] = await select(consent(approvals), [offer()], User())
    assert names == []
    assert "chmod 600" in notice


def test_a_new_approval_replaces_the_one_of_the_same_name(approvals: Approvals) -> None:
    approvals.approve(offer(command="x"))
    approvals.approve(offer(command="y"))
    read = approvals.read()
    assert len(read) == 1
    assert (is_approved(offer(command="y"), read), is_approved(offer(command="x"), read)) == (True, False)
    assert (is_changed(offer(command="y"), read), is_changed(offer(command="x"), read)) == (False, True)


def test_the_servers_of_a_client_are_offered(tmp_path: Path) -> None:
    raw = {
        "cwd": "/project",
        "mcpServers": [
            {"name": "My server.1", "command": "x", "args": ["a"], "env": [{"name": "T", "value": SECRET}]},
            {"type": "http", "name": "far", "url": "https://x", "headers": [{"name": "A", "value": SECRET}]},
            {"type": "sse", "name": "old", "url": "https://x", "headers": []},
            {"name": "mine", "command": "x", "args": [], "env": []},
            {"name": "far", "command": "y", "args": [], "env": []},
            {"name": "plain", "type": "http", "url": "http://example.com", "headers": []},
        ],
    }
    params = parse_params(NewSessionParams, json.loads(json.dumps(raw)))
    assert SECRET not in repr(params)
    servers = [server.build_client_entry() for server in params.mcp_servers]
    settings = user('[mcp]\nsandbox = true\n[mcp.servers.mine]\ncommand = "m"\n', tmp_path)
    offered, problems = offer_client_servers(servers, "/project", settings)
    assert [(each.config.name, each.config.command, each.config.url) for each in offered] == [
        ("My_server_1", ("x", "a"), None),
        ("far", (), "https://x"),
    ]
    assert [each.config.is_sandboxed for each in offered] == [True, False]
    assert offered[0].config.env == {"T": SECRET}
    assert offered[0].description == "Command: x a\nWorking directory: /project\nEnvironment variables: T"
    assert {each.config.source for each in offered} == {"client"}
    assert len(problems) == 4
    assert SECRET not in repr(offered) + repr(problems)
    for part in (
        "`sse` is not supported",
        "your config.toml has a server",
        "client has a server of that name",
        "use https",
    ):
        assert any(part in problem for problem in problems), part


def test_the_digest_of_a_clients_server_covers_its_values() -> None:
    settings = user()
    digests = set()
    entries: list[dict[str, object]] = [
        {"command": "x"}, {"command": "x", "args": ["y"]}, {"command": "x", "env": {"A": "1"}},
        {"command": "x", "env": {"A": "2"}}, {"url": "https://x"}, {"url": "https://x", "headers": {"A": "1"}},
    ]  # fmt: skip
    for entry in entries:
        [offered], problems = offer_client_servers([ClientEntry("a", entry)], "/project", settings)
        digests.add(offered.digest)
        assert problems == ()
    assert len(digests) == 6
