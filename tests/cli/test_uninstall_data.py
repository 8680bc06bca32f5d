"""`thinklsp uninstall-data`: everything of ours is listed and goes after a yes; nothing else is touched."""

import asyncio

import pytest

from tests.stand_ins.http_server import Simulator
from thinklsp.offline.scenario import parse_scenario

# The sample takes a second to say that it is one.
SCENARIO = parse_scenario('[[turn]]\n[[turn.step]]\nblock = [{ text = "Hello." }]\n', "test")


@pytest.fixture
async def state(cli, inside):
    """A state folder and two workspaces with sessions, chat documents and files of the user."""
    folder = cli.home / "a state"
    cli.environment["THINKLSP_STATE_DIR"] = str(folder)
    first, second = cli.folder, cli.home / "other project"
    for cli.folder in (second, first):
        (cli.folder / ".thinklsp" / "chat").mkdir(parents=True)
        (cli.folder / ".thinklsp" / "chat" / "a.chat.md").write_text("## You\n")
        (cli.folder / ".thinklsp" / "chat" / ".gitignore").write_text("*\n")
        (cli.folder / "code.py").write_text("1\n")
        async with Simulator(SCENARIO) as service:
            key = {"ANTHROPIC_BASE_URL": service.base_url, "ANTHROPIC_API_KEY": "sk-test-key-0123456789"}
            done = await asyncio.to_thread(inside, "ask", "hello", **key)
        assert done.returncode == 0
    (folder / "thinklsp.log").write_text("x" * 2_000)
    (folder / "thinklsp.log.1").write_text("x" * 1_000)
    (folder / "mcp-approvals.json").write_text("{}")
    (folder / "mcp-pins.json").write_text("{}")
    (folder / "shadow").mkdir()
    (folder / "shadow" / "link").symlink_to(second)
    (folder / "users" / "0a1b").mkdir(parents=True)
    (folder / "users" / "0a1b" / "permissions.toml").write_text("")
    return folder


def files(cli):
    return {path.relative_to(cli.home.parent).as_posix() for path in cli.home.parent.rglob("*.*") if path.is_file()}


MINE = {"folder/code.py", "home/other project/code.py", "site/sitecustomize.py"}


def test_without_a_terminal_it_lists_and_deletes_nothing(cli, inside, state):
    before = files(cli)
    done = inside("uninstall-data")
    assert done.returncode == 1
    assert "Nothing was deleted. Use --yes" in done.stderr
    for shown in (f"{state}/sessions", "2 kB", f"{cli.folder}/.thinklsp", f"{cli.home}/other project/.thinklsp"):
        assert shown in done.stdout
    assert files(cli) == before


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_it_deletes_after_a_yes(cli, state, answer, code):
    before = files(cli)
    with cli.terminal("uninstall-data") as terminal:
        terminal.until("Delete all of it permanently?")
        terminal.type(f"{answer}\n")
        assert terminal.end() == code
    assert files(cli) == (before if code else MINE)
    assert state.exists() == bool(code)
