"""The standard streams take any text, and a stream that cannot be written to is no success and no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import Cli


def run(cli: Cli, words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    """In a real process and a shell, which alone can close descriptors."""
    line = f'exec "$0" -m thinklsp {words}'
    argv = ("sh", "-c", line, sys.executable)
    return subprocess.run(argv, cwd=cli.folder, env=cli.env(**more), capture_output=True, check=False, timeout=60)


def test_a_name_that_the_stream_cannot_hold_is_escaped(cli: Cli) -> None:
    """H-F17, H-F21."""
    done = run(cli, "ask --file 'n\u00e4 \u2713\x1b' x", THINKLSP_PROVIDER="simulator", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert done.stderr == b"thinklsp ask: There is no file n\\xe4 \\u2713<U+001B> to refer to.\n"


CLOSED = {
    "ask x >&-": b"standard output is closed",
    "--help >/dev/full": b"No space left",
}


@pytest.mark.parametrize("words", CLOSED)
def test_an_output_that_cannot_be_written_is_a_failure(cli: Cli, words: str) -> None:
    """H-F21."""
    done = run(cli, words)
    assert (done.returncode, CLOSED[words] in done.stderr) == (1, True)
    assert b"Traceback" not in done.stderr
