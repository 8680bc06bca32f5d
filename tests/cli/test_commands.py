"""The command line itself, its standard streams, the options of the server, `config` and `simulate`."""

import os
import socket
import subprocess
import sys

import pytest

from thinklsp import __version__
from thinklsp.cli.config import build_settings_table
from thinklsp.cli.main import COMMANDS, run
from thinklsp.settings.model import KEYS

WRONG = [
    ["nonsense"], ["--nonsense"], ["--stdio", "more"], ["config", "nonsense"], ["demo", "--nonsense"],
    ["doctor", "more"], ["ask", "a", "b"], ["ask", "a", "--effort", "huge"], ["simulate", "--port", "70000"],
    ["simulate", "--port", "many"], ["--log-level"], ["--log-level", "loud"], ["--stdio", "--log-level", "critical"],
]  # fmt: skip


@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_wrong_usage_is_exit_code_2(inside, args):
    done = inside(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: thinklsp")


ON_WINDOWS = """
import runpy, sys
sys.platform = "win32"
sys.modules |= dict.fromkeys(["fcntl", "pwd", "resource"])
sys.argv[0] = "thinklsp"
runpy.run_module("thinklsp", run_name="__main__")
"""


@pytest.mark.parametrize("args", [[], ["--stdio"], ["demo"], ["--version"]], ids=" ".join)
def test_windows_is_told_to_use_wsl(args):
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS, *args], input="", capture_output=True, text=True, check=False
    )
    sentence = "thinklsp does not run on Windows. Install it in WSL, and open your folder there.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence)


def test_the_exit_code_reaches_the_shell(cli):
    done = cli.run("nonsense")
    assert done.returncode == 2
    assert "'nonsense'" in done.stderr


# Wrong arguments -> the words that the error quotes
MISTYPED = {
    "--tpc 1": "unrecognized arguments: --tpc",
    "--tpc": "unrecognized arguments: --tpc",
    "dmeo": "invalid choice: 'dmeo' (choose from 'acp'",
    "dmeo now": "invalid choice: 'dmeo'",
    "--stdio demo": "the command demo must come first",
}


@pytest.mark.parametrize(("line", "words"), MISTYPED.items())
def test_what_was_mistyped_is_named(cli, line, words):
    """N27: `--tpc 1` was told as a wrong choice of `1`."""
    done = cli.run(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr.splitlines()[-1]


def test_version_and_help(cli):
    assert cli.run("--version").stdout == f"thinklsp {__version__}\n"
    told = cli.run("--help")
    assert told.returncode == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in told.stdout] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(inside, name):
    told = inside(name, "--help")
    assert told.returncode == 0
    assert told.stdout.startswith(f"usage: thinklsp {name}")
    assert COMMANDS[name] in inside("--help").stdout


def test_settings_table_has_each_setting_once(inside):
    done = inside("config", "table")
    assert done.stdout == build_settings_table() + "\n"
    rows = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == [f"| `{key}`" for key in KEYS]


@pytest.mark.parametrize("words", [["ask", "hi"], ["sessions", "list"]])
def test_a_folder_that_is_gone_is_told(cli, monkeypatch, capsys, words):
    """Within this process: Python's own start may have something to say there, too."""
    for name, value in cli.env(THINKLSP_PROVIDER="simulator").items():
        monkeypatch.setenv(name, value)
    (cli.folder / "gone").mkdir()
    monkeypatch.chdir(cli.folder / "gone")
    (cli.folder / "gone").rmdir()
    with pytest.raises(SystemExit) as end:
        sys.exit(run(words))
    told = capsys.readouterr().err
    assert (end.value.code, len(told.splitlines())) == (1, 1)
    assert told.startswith(f"thinklsp {words[0]}: ")
    assert "No such file or directory. Change to another" in told


EXCLUSIVE = "--no-token and --token-file are mutually exclusive"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--tcp", "0.0.0.0:0"], 2, "--listen-publicly"),
        (["--ws", "[::]:0"], 2, "--listen-publicly"),
        (["--tcp", "0.0.0.0:0", "--listen-publicly", "--no-token"], 2, "--no-token"),
        (["--ws", "127.0.0.1:0", "--no-token"], 2, "--no-token"),
        (["--tcp", "127.0.0.1:0", "--no-token", "--token-file", "good"], 2, EXCLUSIVE),
        (["--ws", "127.0.0.1:0", "--no-token", "--token-file", "good"], 2, "works only with --tcp"),
        (["--tcp", "127.0.0.1"], 2, "HOST:PORT"),
        (["--tcp", "127.0.0.1:70000"], 2, "HOST:PORT"),
        (["--tcp", ""], 2, "HOST:PORT"),
        (["--tcp", "127.0.0.1:0", "--ws", "127.0.0.1:0"], 2, "not allowed with"),
        (["--tcp", "127.0.0.1:0", "--allow-origin", "https://ide.example.com"], 2, "--ws"),
        (["--ws", "127.0.0.1:0", "--allow-origin", "*"], 2, "origin"),
        (["--ws", "127.0.0.1:0", "--allow-origin", "https://ide.example.com/"], 2, "origin"),
        (["--stdio", "--no-token"], 2, "--tcp"),
        (["--metrics", "9464"], 2, "--tcp"),
        (["--ws", "127.0.0.1:0", "--metrics", "port"], 2, "HOST:PORT"),
        (["--ws", "127.0.0.1:0", "--metrics", ""], 2, "HOST:PORT"),
        (["--ws", "127.0.0.1:0", "--metrics", "0.0.0.0:0"], 2, "--listen-publicly"),
        (["--listen-publicly"], 2, "--tcp"),
        (["--tcp", "nowhere.invalid:0"], 1, "nowhere.invalid"),
        (["--tcp", "127.0.0.1:0", "--token-file", "missing"], 1, "missing"),
        (["--tcp", "127.0.0.1:0", "--token-file", "open"], 1, "chmod 600 open"),
        (["--ws", "127.0.0.1:0", "--token-file", "open"], 1, "chmod 600 open"),
        (["--ws", "127.0.0.1:0", "--token-file", "link"], 1, "link"),
        (["--ws", "127.0.0.1:0", "--token-file", "."], 1, "directory"),
        (["--ws", "127.0.0.1:0", "--token-file", "pipe"], 1, "not a regular file"),
        (["--ws", "127.0.0.1:0", "--token-file", "short"], 1, "16"),
        (["--ws", "127.0.0.1:0", "--token-file", "odd"], 1, "letters"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_not_listened_on(cli, inside, arguments, code, words):
    for name, text in (("open", "x" * 40), ("good", "x" * 40), ("short", "x" * 15), ("odd", "x y" * 20)):
        (cli.folder / name).write_text(text)
        (cli.folder / name).chmod(0o640 if name == "open" else 0o600)
    (cli.folder / "link").symlink_to("good")
    os.mkfifo(cli.folder / "pipe", 0o600)
    done = inside(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "x" * 15 not in done.stderr


ISSUER, AUDIENCE = 'issuer = "https://login.example.com"', 'audience = "thinklsp"'
OIDC = f"[serve.oidc]\n{ISSUER}\n{AUDIENCE}\n"


@pytest.mark.parametrize(
    ("settings", "arguments", "words"),
    [
        (OIDC, ["--tcp", "127.0.0.1:0"], "identifies users only on a WebSocket. Use --ws."),
        (OIDC, ["--tcp", "127.0.0.1:0", "--no-token"], "identifies users only on a WebSocket. Use --ws."),
        (OIDC, ["--ws", "127.0.0.1:0", "--token-file", "good"], "mutually exclusive. Remove one of them."),
        (f"[serve.oidc]\n{ISSUER}\n", ["--ws", "127.0.0.1:0"], "serve.oidc.audience"),
        (f"{OIDC}algorithms = ['none']\n", ["--ws", "127.0.0.1:0"], "serve.oidc.algorithms"),
        (f"[serve.odic]\n{ISSUER}\n", ["--ws", "127.0.0.1:0"], "serve.odic"),
        ("[serve", ["--ws", "127.0.0.1:0"], "config.toml"),
    ],
)
def test_users_are_never_taken_for_one_by_mistake(cli, inside, settings, arguments, words):
    """The server does not start if its settings cannot have the effect that they seem to be meant for."""
    for name, text in (("config.toml", settings), ("good", "x" * 40)):
        (cli.folder / name).write_text(text)
        (cli.folder / name).chmod(0o600)
    done = inside(*arguments, THINKLSP_CONFIG=str(cli.folder / "config.toml"))
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["--tcp", "--ws", "--metrics"])
def test_a_port_that_is_taken(cli, kind):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = cli.run(*(["--ws", "127.0.0.1:0"] if kind == "--metrics" else []), kind, address)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Cannot listen on {address}" in done.stderr


def test_a_file_with_a_mistake_keeps_a_server_from_starting(cli):
    """Otherwise its limits would not count."""
    own = cli.folder / "own.toml"
    own.write_text("[serve]\nmax_clients = 0\n")
    own.chmod(0o600)
    done = cli.run("--ws", "127.0.0.1:0", THINKLSP_CONFIG=str(own))
    assert (done.returncode, done.stdout) == (1, "")
    assert "serve.max_clients" in done.stderr


@pytest.mark.parametrize("variable", ["THINKLSP_CONFIG", "THINKLSP_ADMIN_CONFIG", "THINKLSP_STATE_DIR"])
def test_a_relative_path_keeps_a_server_from_starting(cli, variable):
    """Otherwise other files would count, which may lack users, budgets and the database."""
    done = cli.run("--ws", "127.0.0.1:0", **{variable: "own.toml"})
    assert (done.returncode, done.stdout) == (1, "")
    assert f"The server was not started: {variable} is ignored because it is a relative path" in done.stderr


def test_a_server_names_settings_that_it_ignores(cli):
    own = cli.folder / "own.toml"
    own.write_text('[stor]\nurl = "postgresql://127.0.0.1/db"\n')
    own.chmod(0o600)
    done = cli.run("--ws", "127.0.0.1:0", "--token-file", "missing", THINKLSP_CONFIG=str(own))
    assert "Unknown setting `stor.url` in your config.toml." in done.stderr


def test_on_a_terminal_it_says_that_it_waits_for_an_editor(cli):
    with cli.terminal() as terminal:
        terminal.until("waiting for LSP messages")
        terminal.until("for all commands.")
        # No line is cut in the middle of a word at the usual width.
        assert all(len(line.strip()) < 80 for line in terminal.output.splitlines())
    assert "waiting" not in cli.run("--stdio").stderr
