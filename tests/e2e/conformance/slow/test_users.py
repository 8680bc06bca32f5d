"""Several users on one server that identifies them: what one of them says, allows or keeps never reaches another."""

from __future__ import annotations

import json
import secrets
import tomllib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import refused, say
from tests.e2e.conftest import Begin
from tests.support.canary import Canary
from tests.support.client.actions import Editing
from tests.support.forking import Nursery
from tests.support.identity_provider import AUDIENCE, IdentityProvider, providing
from tests.support.listening import Listening
from tests.support.outside import PASSED, Outside

RULE = "Always write tests in the house style."
FILES = {"AGENTS.md": RULE, "app.py": "x = 1\n"}


class Team(Listening):
    """A server with `[serve.oidc]`. `user` has the claims of the client that connects next. `more` is TOML."""

    def __init__(self, provider: IdentityProvider, nursery: Nursery | None, client: type[Editing]) -> None:
        super().__init__("ws", nursery=nursery, client=client)
        self.provider = provider
        self.user = {"org": "red", "sub": "anna"}
        self.more = ""
        self.tokens: list[str] = []

    async def read_token(self) -> str:
        self.tokens.append(self.provider.sign(self.provider.make_claims(**self.user)))
        return self.tokens[-1]

    async def start(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._write_settings(Path(environment["XDG_CONFIG_HOME"], "thinklsp"))
        await super().start(folder, environment)

    def _write_settings(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        claims = 'claim_tenant = "org"\ngroups = "groups"\n'
        address = f'issuer = "{self.provider.issuer}"\naudience = "{AUDIENCE}"\n'
        (folder / "config.toml").write_text(f"{self.more}\n[serve.oidc]\n{address}{claims}")
        (folder / "config.toml").chmod(0o600)


@pytest.fixture
async def team(
    tmp_path: Path, nursery: Nursery | None, client_class: type[Editing], request: pytest.FixtureRequest
) -> AsyncIterator[Team]:
    """To be named before `begin`. The server prints no token, and no token is found in its output or in a file."""
    async with providing() as provider:
        server = Team(provider, nursery, client_class)
        yield server
        try:
            if request.node.stash.get(PASSED, False):
                assert await server.end() == 143
                assert server.stdout == b""
                assert server.log == f"thinklsp: listening on ws://127.0.0.1:{server.port}\n"
                canary = Canary({str(number): token for number, token in enumerate(server.tokens)})
                assert canary.search_tree(tmp_path) == []
        finally:
            await server.stop()


async def join(team: Team, outside: Outside, org: str, user: str, root: Path | None = None) -> Outside:
    team.user = {"org": org, "sub": user}
    return await outside.beside(root)


async def list_sessions(outside: Outside) -> list[Any]:
    sessions: list[Any] = await outside.client.command("thinklsp.sessions")
    return sessions


async def chat(outside: Outside, *answers: str, **argument: Any) -> Any:
    outside.client.editor.message_answers = list(answers)
    result = await outside.turn("thinklsp.chat", {"prompt": "Hello."} | argument)
    assert outside.client.editor.message_answers == []
    return result


@pytest.mark.parametrize("store", ["files", "postgres"])
async def test_user_sees_only_own_sessions(
    team: Team, begin: Begin, store: str, request: pytest.FixtureRequest
) -> None:
    if store == "postgres":
        team.more = f'[store]\nurl = "{request.getfixturevalue("postgres").url}"\n'
    red = team.user["org"] = f"red-{secrets.token_hex(4)}"
    outside = await begin(*[say("Hi.")] * 2, files={"app.py": "x = 1\n"}, connect=team.connect)
    session = (await chat(outside))["sessionId"]
    for org, user in ((red, "berta"), ("blue", "anna"), (f"../{red}", "anna"), (red, "anna/../anna")):
        other = await join(team, outside, org, user)
        assert await list_sessions(other) == []
        for op in ("show", "export", "delete", "fork", "rename"):
            argument = {"op": op, "sessionId": session} | ({"title": "x"} if op == "rename" else {})
            error = await refused(other.client.command("thinklsp.sessions", argument))
            assert "session" in error.lower()
            assert "in use" not in error
    # The same user on another connection.
    again = await join(team, outside, red, "anna")
    assert [listed["sessionId"] for listed in await list_sessions(again)] == [session]
    assert (await chat(again, sessionId=session))["sessionId"] == session
    files = list((outside.home / "state").glob("users/*/sessions/sessions.db"))
    assert len(files) == (5 if store == "files" else 0)


async def test_permissions_of_one_user_are_not_those_of_another(team: Team, begin: Begin) -> None:
    outside = await begin(*[say("Hi.")] * 3, files=FILES, connect=team.connect)
    await chat(outside, "Follow them")
    berta = await join(team, outside, "red", "berta")
    await chat(berta, "Not now")
    again = await join(team, outside, "red", "anna")
    await chat(again)
    sent = [json.dumps(request.body).count(RULE) for request in outside.provider.requests]
    assert sent == [1, 0, 1]
    state, config = outside.home / "state", outside.home / "config/thinklsp"
    # The administrator's folder is not written to.
    assert [path.name for path in config.iterdir()] == ["config.toml"]
    [remembered] = state.glob("users/*/permissions.toml")
    assert len(tomllib.loads(remembered.read_text())["trusted"]) == 1
    folders = sorted((state / "users").iterdir())
    assert len(folders) == 2
    assert {oct(folder.stat().st_mode & 0o777) for folder in [*folders, state / "users"]} == {"0o700"}
    report = await again.client.command("thinklsp.doctor")
    assert [file["path"] for file in report["files"] if file["path"].endswith("permissions.toml")] == [str(remembered)]


async def test_key_command_and_gateway_get_the_name_of_the_user(team: Team, begin: Begin, tmp_path: Path) -> None:
    command = tmp_path / "key"
    command.write_text(
        '#!/bin/sh\necho "$THINKLSP_TENANT:$THINKLSP_USER" >> "$0.log"\necho "sk-ant-canary-of-$THINKLSP_USER"\n'
    )
    command.chmod(0o700)
    team.more = f'[providers.anthropic]\napi_key_command = ["{command}"]\nuser_header = "thinklsp-user"\n'
    team.user = {"org": "röd/1", "sub": "anna@example.com"}
    outside = await begin(
        *[say("Hi.")] * 2, files={"app.py": ""}, connect=team.connect, env={"ANTHROPIC_API_KEY": None}
    )
    outside.provider.key = "sk-ant-canary-of-anna@example.com"
    await chat(outside)
    berta = await join(team, outside, "blue", "berta@example.com")
    outside.provider.key = "sk-ant-canary-of-berta@example.com"
    await chat(berta)
    headers = [request.headers["thinklsp-user"] for request in outside.provider.requests]
    assert headers == ["r%C3%B6d%2F1/anna@example.com", "blue/berta@example.com"]
    assert (tmp_path / "key.log").read_text().splitlines() == ["röd/1:anna@example.com", "blue:berta@example.com"]


@pytest.mark.parametrize("place", ["state", "state/users", "state/users/USER", "config/thinklsp", "link"])
async def test_data_of_the_server_cannot_be_opened(team: Team, begin: Begin, place: str) -> None:
    """Neither the folders of other users, nor the settings, nor a folder around them, nor by a link."""
    outside = await begin(*[say("Hi.")] * 2, files={"app.py": ""}, connect=team.connect)
    await chat(outside)
    (outside.home / "link").symlink_to(outside.home / "state/users")
    [user] = (outside.home / "state/users").iterdir()
    berta = await join(team, outside, "red", "berta", outside.home / place.replace("USER", user.name))
    await chat(berta)
    await berta.until_told("contains data of the server")


async def test_servers_of_a_folder_do_not_start(team: Team, begin: Begin, tmp_path: Path) -> None:
    """Neither a question nor a yes: they would run with the rights of the server, and see its variables."""
    touched = tmp_path / "touched"
    server = {"command": "/bin/sh", "args": ["-c", f"echo $ANTHROPIC_API_KEY > {touched}"]}
    files = {".mcp.json": json.dumps({"mcpServers": {"helper": server}})}
    outside = await begin(say("Hi."), files=files, connect=team.connect)
    result = await chat(outside)
    assert [notice for notice in result["notices"] if "MCP servers of this folder are not used" in notice]
    assert not touched.exists()
    assert (await outside.client.command("thinklsp.mcp"))["servers"] == []
