"""`thinklsp doctor --acp`: the command, the key, and what a small environment means."""

import re

KEY = "sk-ant-secret-0123456789abcdef"


def test_it_names_the_command_and_the_key(inside):
    done = inside("doctor", "--acp", ANTHROPIC_API_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert KEY not in done.stdout
    assert re.search(r"^command +/\S+ .*acp$", done.stdout, re.MULTILINE)
    assert "thinklsp setup zed" in done.stdout
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
