"""H-F17: every command in every encoding: no answer is lost because the terminal cannot show a character of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sizes import sized

# A commit run takes the first two.
ENCODINGS = {
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "UTF-8": {"LC_ALL": "C.UTF-8"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "POSIX": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
# The first command creates the session that the others show.
COMMANDS = (
    "ask caf\u00e9\u2713", "ask --json x", "sessions", "sessions list --json", "sessions show last",
    "sessions export last", "sessions export last --format json", "doctor", "doctor --json", "config table",
    "config efforts", "config schema", "demo", "ask --help", "--help", "--version",
)  # fmt: skip
CLOSED = {
    "--version >&-": (1, b"standard output is closed"),
    "--version >/dev/full": (1, b"No space left"),
    "ask --help >/dev/full": (1, b"No space left"),
    "doctor >/dev/full": (1, b"No space left"),
    "sessions list <&- 2>&-": (0, b""),
}


def run(folder: Path, words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "THINKLSP_PROVIDER": "simulator", **more,
    }  # fmt: skip
    line = f'exec "$0" -m thinklsp {words}'
    argv = ("sh", "-c", line, sys.executable)
    (folder / "ws").mkdir(exist_ok=True)
    return subprocess.run(argv, cwd=folder / "ws", env=environment, capture_output=True, check=False, timeout=120)


@pytest.mark.parametrize("encoding", [*ENCODINGS][: sized(commit=2, nightly=len(ENCODINGS))])
def test_every_command_ends_well_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    for words in COMMANDS:
        done = run(tmp_path, words, **ENCODINGS[encoding])
        assert done.returncode == 0, (words, done.stderr)
        assert b"Traceback" not in done.stderr, words
        assert b"fault" not in done.stderr, words
        if words.startswith("ask caf"):
            # In the other locales not even the command line can be read.
            assert (b"\\u" in done.stdout) == (encoding != "UTF-8")


@pytest.mark.parametrize("words", CLOSED)
def test_a_stream_that_is_closed_or_full(tmp_path: Path, words: str) -> None:
    """H-F21."""
    done = run(tmp_path, words)
    code, sentence = CLOSED[words]
    assert (done.returncode, sentence in done.stderr) == (code, True)
    assert b"Traceback" not in done.stderr
