"""What a process leaves behind tells where something went wrong, and repeats nothing that it had at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.outside import ROOT

SECRET = "sk-ant-secret-0123456789abcdef"
BEGIN = f"""
import gc, logging, os, resource, threading
from thinklsp.cli.logs import {{}}
{{}}()
def faulty():
    try:
        raise ValueError("{SECRET}")
    except ValueError as error:
        raise KeyError("{SECRET}") from error
class Faulty:
    def __del__(self):
        faulty()
"""
FAULTS = {
    "logged": "try: faulty()\nexcept KeyError: logging.getLogger('x').exception('it failed')",
    "uncaught": "faulty()",
    "uncaught in a thread": "thread = threading.Thread(target=faulty); thread.start(); thread.join()",
    "uncaught while something goes": "it = Faulty(); del it; gc.collect()",
}


def left_behind(place: Path, code: str, function: str = "set_up_logs", **more: str) -> tuple[str, str]:
    """What stands on standard error and in the log, if that is a file."""
    env = {"PYTHONPATH": str(ROOT), "HOME": str(place), "THINKLSP_STATE_DIR": str(place / "state")} | more
    argv = [sys.executable, "-c", BEGIN.format(function, function) + code]
    done = subprocess.run(argv, env=env, cwd=place, capture_output=True, text=True, umask=0, check=False, timeout=60)
    log = place / "state/thinklsp.log"
    return done.stderr, log.read_text() if log.is_file() and not log.is_symlink() else ""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_by_its_kind_and_place(tmp_path: Path, fault: str) -> None:
    for told in left_behind(tmp_path, FAULTS[fault]):
        first, second = told.splitlines()[-2:]
        assert (first.partition(" ")[0], second.partition(" ")[0]) == ("ValueError", "KeyError")
        assert first.endswith(" faulty")
        assert second.endswith(" faulty")
        assert SECRET not in told
    told, _ = left_behind(tmp_path, FAULTS[fault], "log_to_stderr")
    assert ("KeyError in " in told, SECRET in told) == (True, False)


LEVELS = {"debug": 3, "INFO": 2, "error": 0, "loud": 1}


@pytest.mark.parametrize(("level", "told"), LEVELS.items())
def test_the_environment_chooses_the_level(tmp_path: Path, level: str, told: int) -> None:
    code = "log = logging.getLogger('thinklsp.x'); log.debug('one'); log.info('two'); log.warning('three')"
    lines = left_behind(tmp_path, code, THINKLSP_LOG_LEVEL=level)
    assert [text.splitlines()[-told:] if told else text for text in lines] == [lines[0].splitlines() or ""] * 2
    assert lines[0].count(" thinklsp.x: ") == told


def test_libraries_stay_silent_and_keys_are_masked_at_any_level(tmp_path: Path) -> None:
    """Libraries would log addresses and bodies."""
    keys = {name: f"sk-{name}-0123456789" for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "MY_PASSWORD")}
    code = (
        "logging.getLogger('httpcore.connection').debug('x'); logging.getLogger('asyncio').debug('y')\n"
        f"logging.getLogger('thinklsp.x').debug('sent %s', {list(keys.values())})"
    )
    for told in left_behind(tmp_path, code, THINKLSP_LOG_LEVEL="debug", **keys):
        [line] = told.splitlines()
        assert line.endswith("sent ['[hidden]', '[hidden]', '[hidden]']")


def test_a_recursion_without_end_is_a_short_line(tmp_path: Path) -> None:
    code = "def deep(): deep()\ntry: deep()\nexcept RecursionError: logging.getLogger('x').exception('it failed')"
    for told in left_behind(tmp_path, code):
        [line] = [line for line in told.splitlines() if line.startswith("RecursionError")]
        assert line.endswith(" deep")
        assert len(line) < 500


def test_log_is_private_and_memory_buffer_is_cleared(tmp_path: Path) -> None:
    told, log = left_behind(tmp_path, "logging.getLogger('x').warning('%s', resource.getrlimit(resource.RLIMIT_CORE))")
    assert told.endswith("(0, 0)\n")
    assert log == told
    modes = {name: os.stat(tmp_path / name).st_mode & 0o777 for name in ("state", "state/thinklsp.log")}
    assert modes == {"state": 0o700, "state/thinklsp.log": 0o600}


LOGGED = "logging.getLogger('x').warning('first'); logging.getLogger('x').warning('second')"
# What lies in the place of the log, and in which mode the state folder is; then why no log is kept.
READER = "reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)"
HINDRANCES = {
    "a folder": ("os.mkdir(log)", 0o700, "thinklsp.log cannot be used: Is a directory"),
    "a link": ("os.symlink('victim', log)", 0o700, "thinklsp.log cannot be used: Too many levels of symbolic links"),
    "a pipe that nobody reads": ("os.mkfifo(log)", 0o700, "thinklsp.log cannot be used: "),
    "a pipe that somebody reads": (f"os.mkfifo(log); {READER}", 0o700, "is not a regular file that you own"),
    "a link in the folder of everybody": ("os.symlink('victim', log)", 0o777, "can be changed by other users"),
    "nothing in the folder of everybody": ("pass", 0o777, "can be changed by other users"),
}


@pytest.mark.parametrize(("obstruct", "mode", "why"), HINDRANCES.values(), ids=HINDRANCES)
@pytest.mark.parametrize("early", [True, False])
def test_unwritable_log_is_reported_once_and_ignored(
    tmp_path: Path, obstruct: str, mode: int, why: str, early: bool
) -> None:
    state, victim = tmp_path / "state", tmp_path / "state/victim"
    place = f"log = {str(state / 'thinklsp.log')!r}; {obstruct}; os.chmod({str(state)!r}, {mode})"
    state.mkdir(mode=0o700)
    victim.write_text("mine")
    names = {"os": os}
    if early:
        exec(place, names)  # noqa: S102 - what stands in the table
    done = left_behind(tmp_path, LOGGED if early else f"{place}\n{LOGGED}")[0]
    if "reader" in names:
        os.close(names["reader"])
    lines = done.splitlines()
    assert [line.rpartition(" ")[2] for line in lines if " x: " in line] == ["first", "second"]
    [told] = [line for line in lines if " x: " not in line]
    assert "no log file is written: " in told
    assert why in told
    assert victim.read_text() == "mine"
    assert sorted(os.listdir(state)) == ["thinklsp.log", "victim"] or obstruct == "pass"


def test_a_state_folder_that_was_taken_away_is_made_again(tmp_path: Path) -> None:
    told, log = left_behind(tmp_path, f"os.rmdir({str(tmp_path / 'state')!r}); {LOGGED}")
    assert log == told
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_readable_files_of_earlier_server_are_made_private(tmp_path: Path) -> None:
    state, log = tmp_path / "state", tmp_path / "state/thinklsp.log"
    for content, kept in (("x", "thinklsp.log"), ("x" * 1_000_001, "thinklsp.log.1")):
        state.mkdir(exist_ok=True)
        log.write_text(content)
        state.chmod(0o755)
        log.chmod(0o644)
        assert left_behind(tmp_path, "pass") == ("", content if len(content) == 1 else "")
        assert sorted(os.listdir(state)) == [kept]
        assert {path.stat().st_mode & 0o777 for path in (state, *state.iterdir())} == {0o700, 0o600}
