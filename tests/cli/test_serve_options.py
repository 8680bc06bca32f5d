"""The options of the server: what is not listened on, and why, in words."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli, Done


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--tcp", "0.0.0.0:0"], 2, "--listen-publicly"),
        (["--ws", "[::]:0"], 2, "--listen-publicly"),
        (["--tcp", "0.0.0.0:0", "--listen-publicly", "--no-token"], 2, "--no-token"),
        (["--ws", "127.0.0.1:0", "--no-token"], 2, "--no-token"),
        (["--tcp", "127.0.0.1:0", "--no-token", "--token-file", "good"], 2, "--no-token excludes --token-file"),
        (["--ws", "127.0.0.1:0", "--no-token", "--token-file", "good"], 2, "goes with --tcp alone"),
        (["--tcp", "127.0.0.1"], 2, "HOST:PORT"),
        (["--tcp", "127.0.0.1:70000"], 2, "HOST:PORT"),
        (["--tcp", ""], 2, "HOST:PORT"),
        (["--tcp", "127.0.0.1:0", "--ws", "127.0.0.1:0"], 2, "not allowed with"),
        (["--tcp", "127.0.0.1:0", "--allow-origin", "https://ide.example.com"], 2, "--ws"),
        (["--ws", "127.0.0.1:0", "--allow-origin", "*"], 2, "origin"),
        (["--ws", "127.0.0.1:0", "--allow-origin", "https://ide.example.com/"], 2, "origin"),
        (["--stdio", "--no-token"], 2, "--tcp"),
        (["--listen-publicly"], 2, "--tcp"),
        (["--tcp", "nowhere.invalid:0"], 1, "nowhere.invalid"),
        (["--tcp", "127.0.0.1:0", "--token-file", "missing"], 1, "missing"),
        (["--tcp", "127.0.0.1:0", "--token-file", "open"], 1, "chmod 600 open"),
        (["--ws", "127.0.0.1:0", "--token-file", "open"], 1, "chmod 600 open"),
        (["--ws", "127.0.0.1:0", "--token-file", "link"], 1, "link"),
        (["--ws", "127.0.0.1:0", "--token-file", "."], 1, "directory"),
        (["--ws", "127.0.0.1:0", "--token-file", "pipe"], 1, "not a file"),
        (["--ws", "127.0.0.1:0", "--token-file", "short"], 1, "16"),
        (["--ws", "127.0.0.1:0", "--token-file", "odd"], 1, "letters"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_not_listened_on(
    cli: Cli, inside: Callable[..., Done], arguments: list[str], code: int, words: str
) -> None:
    for name, text, mode in (
        ("open", "x" * 40, 0o640), ("good", "x" * 40, 0o600), ("short", "x" * 15, 0o600), ("odd", "x y" * 20, 0o600),
    ):  # fmt: skip
        (cli.folder / name).write_text(text)
        (cli.folder / name).chmod(mode)
    (cli.folder / "link").symlink_to("good")
    os.mkfifo(cli.folder / "pipe", 0o600)
    done = inside(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "x" * 15 not in done.stderr


@pytest.mark.parametrize("kind", ["--tcp", "--ws"])
def test_a_port_that_is_taken(inside: Callable[..., Done], kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = inside(kind, address)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{address} cannot be listened on" in done.stderr


def test_on_a_terminal_it_says_that_it_waits_for_an_editor(cli: Cli) -> None:
    with cli.terminal() as terminal:
        terminal.until("waiting for an editor")
    assert "waiting" not in cli.run("--stdio").stderr
