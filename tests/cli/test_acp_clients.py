"""`thinklsp doctor --acp`: the settings to paste, the key, and what a small environment means."""

import json
import re
from pathlib import Path

import pytest

from thinklsp.cli.doctor import build_client_settings

ROOT = Path(__file__).parents[2]
KEY = "sk-ant-secret-0123456789abcdef"
COMMAND = ("/path/to/thinklsp", "acp")
SETTINGS = build_client_settings(COMMAND)


def test_it_names_the_command_and_each_client(inside):
    done = inside("doctor", "--acp", ANTHROPIC_API_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert KEY not in done.stdout
    command = re.search(r"^command +(/\S+) .*acp$", done.stdout, re.MULTILINE)[1]
    assert done.stdout.count(json.dumps(command)) == len(SETTINGS)
    assert all(client in done.stdout for client in (*SETTINGS, "setup zed", "setup jetbrains"))
    assert "anthropic   the environment variable ANTHROPIC_API_KEY" in done.stdout
    assert "To store it for them, run `thinklsp acp --setup`." in done.stdout


def test_a_key_outside_the_environment_reaches_every_client(cli, inside):
    config = cli.home / "config.toml"
    config.write_text('[providers.anthropic]\napi_key_command = ["true"]\n')
    done = inside("doctor", "--acp", THINKLSP_CONFIG=str(config))
    assert (done.returncode, done.stderr) == (0, "")
    assert "the key command in the user file" in done.stdout
    assert "`thinklsp acp --setup`" not in done.stdout
    assert f"{config} is used because of THINKLSP_CONFIG. A client must pass this variable" in done.stdout


def test_without_a_key_it_names_the_setup(inside):
    done = inside("doctor", "--acp")
    assert (done.returncode, done.stderr) == (1, "")
    assert "! Run `thinklsp acp --setup` to store a key that every client finds." in done.stdout
    assert inside("doctor", "--acp", THINKLSP_PROVIDER="simulator").returncode == 0
    assert inside("doctor", "--acp", "--json").returncode == 2


def test_it_works_without_a_home(cli, inside, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    del cli.environment["HOME"]
    assert "command " in inside("doctor", "--acp", THINKLSP_CONFIG=str(cli.home / "none.toml")).stdout


@pytest.mark.parametrize("title", SETTINGS)
def test_the_page_shows_the_same_settings(title):
    assert SETTINGS[title] in (ROOT / "docs" / "acp.md").read_text("utf-8")
