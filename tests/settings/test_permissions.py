"""`permissions.toml`: its format, changes by the user, and changes by several servers."""

from __future__ import annotations

import fcntl
import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.settings.test_user_file import load
from tests.support.sizes import examples
from thinklsp.core.errors import SettingsError
from thinklsp.settings.permissions import PermissionsFile

OWN = """\
# mine
[commands]
allow = [
  ["pytest"], # every day
]
deny = [["rm"]]

# at home
[[trusted]]
folder = "/home/me" # the first
digest = "0"
"""


@pytest.fixture
def kept(tmp_path: Path) -> PermissionsFile:
    return PermissionsFile.locate_beside(str(tmp_path / "config.toml"))


def test_what_was_allowed_is_a_readable_rule(kept: PermissionsFile) -> None:
    for _ in range(2):
        kept.allow("allow", ["python", "-m", "pytest"])
        kept.allow("exact", ["ls", "-l"])
        kept.add_trusted_folder("/home/me", "1")
    kept.add_trusted_folder("/home/me", "2")
    text = Path(kept.path).read_text()
    assert text == (
        "# Commands that you allowed while working with thinklsp. You can change this file; deny wins over allow.\n\n"
        '[commands]\nallow = [["python", "-m", "pytest"]]\nexact = [["ls", "-l"]]\n'
        '[[trusted]]\nfolder = "/home/me"\ndigest = "2"\n'
    )
    assert os.stat(kept.path).st_mode & 0o777 == 0o600
    assert os.listdir(os.path.dirname(kept.path)) == ["permissions.toml"]


def test_what_the_user_wrote_stays(kept: PermissionsFile) -> None:
    Path(kept.path).write_text(OWN)
    kept.allow("allow", ["go", "test"])
    kept.allow("exact", ["make"])
    kept.add_trusted_folder("/home/me", "1")
    kept.add_trusted_folder("/home/you", "2")
    text = Path(kept.path).read_text()
    for part in ("# mine", '["pytest"], # every day', 'deny = [["rm"]]', "# at home", '"/home/me" # the first'):
        assert part in text
    remembered = kept.read()
    assert remembered.commands.allow == (("pytest",), ("go", "test"))
    assert remembered.commands.exact == (("make",),)
    assert [(each.folder, each.digest) for each in remembered.trusted] == [("/home/me", "1"), ("/home/you", "2")]


def describe_comments(text: str) -> dict[str, str]:
    """Return the line that each comment describes: its own line, or the next line with a key or a table."""
    described: dict[str, str] = {}
    waiting: list[str] = []
    for line in text.splitlines():
        code, _, comment = (part.strip() for part in line.partition("#"))
        if code or not comment:
            described |= dict.fromkeys([*waiting, comment] if code else waiting, code.partition("=")[0])
            waiting.clear()
        else:
            waiting.append(comment)
    described |= dict.fromkeys(waiting, "")
    return {comment: line for comment, line in described.items() if comment}


LAYOUTS = {
    "as documented": OWN,
    "without blank lines": OWN.replace("\n\n", "\n"),
    "no rules yet": "[commands]\n# at home\n[[trusted]]\nfolder = '/home/me'\ndigest = '0'\n# the end\n",
    "other order": (
        "[[mcp]]\nserver = 'time'\ntool = 'now'\npin = '0'\n\n"
        "# at home\n[[trusted]]\nfolder = '/home/me'\ndigest = '0'\n# mine\n[commands]\ndeny = []\n# exact = []\n"
    ),
    "comments at the end": "[commands]\nallow = []\n\n# none yet\n",
    "only a comment": "# none yet\n",
    "inline": "commands = {deny = []} # mine\ntrusted = [] # none\n# the tools\nmcp = []\n",
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_comment_stays_with_the_line_that_it_describes(kept: PermissionsFile, name: str) -> None:
    Path(kept.path).write_text(LAYOUTS[name])
    expected = describe_comments(LAYOUTS[name])
    for change in (
        lambda: kept.allow("exact", ["make"]),
        lambda: kept.allow("allow", ["go"]),
        lambda: kept.add_trusted_folder("/home/you", "1"),
        lambda: kept.allow_mcp_tool("time", "then", "2"),
        lambda: kept.allow_mcp_tool("time", "when", "2"),
    ):
        change()
        described = describe_comments(Path(kept.path).read_text())
        assert {comment: described.get(comment) for comment in expected} == expected, Path(kept.path).read_text()


def test_a_link_stays_one(kept: PermissionsFile, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    os.symlink("dotfiles/mine.toml", kept.path)
    kept.allow("allow", ["x"])
    assert Path(kept.path).is_symlink()
    assert tomllib.loads((tmp_path / "dotfiles/mine.toml").read_text())["commands"]["allow"] == [["x"]]


BROKEN = {
    "no TOML": "allow = [",
    "an unknown key": "[commands]\nalow = []\n",
    "a text for a rule": '[commands]\nallow = ["pytest"]\n',
    "an empty rule": "[commands]\nallow = [[]]\n",
    "a number for a word": "[commands]\ndeny = [[1]]\n",
    "no table": "commands = 3\n",
    "not UTF-8": "# \udcff",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_with_a_mistake_allows_nothing_and_is_left_alone(kept: PermissionsFile, name: str) -> None:
    before = BROKEN[name].encode("utf-8", "surrogateescape")
    Path(kept.path).write_bytes(before)
    for use in (kept.read, lambda: kept.allow("allow", ["x"]), lambda: kept.add_trusted_folder("/x", "1")):
        with pytest.raises(SettingsError, match=r"permissions\.toml( .*)?\."):
            use()
    assert Path(kept.path).read_bytes() == before


def test_a_file_that_others_can_write_allows_nothing(kept: PermissionsFile) -> None:
    Path(kept.path).write_text(OWN)
    os.chmod(kept.path, 0o622)  # noqa: S103 - that is the mistake
    with pytest.raises(SettingsError, match="chmod 600"):
        kept.read()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"permissions\.toml cannot be"):
        PermissionsFile(str(tmp_path / "file" / "permissions.toml")).allow("allow", ["x"])


def test_who_waits_too_long_is_told(kept: PermissionsFile) -> None:
    held = os.open(os.path.dirname(kept.path), os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SettingsError, match="cannot be written"):
            PermissionsFile(kept.path, lock_timeout=0.05).allow("allow", ["x"])
    finally:
        os.close(held)
    kept.allow("allow", ["x"])


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1, max_size=5))
def test_every_command_is_remembered_as_it_is(kept: PermissionsFile, argv: list[str]) -> None:
    kept.allow("exact", argv)
    assert tuple(argv) in kept.read().commands.exact


def test_the_sections_of_the_users_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    file = load(path).file
    assert (file.commands.enabled, file.commands.timeout_seconds) == (False, 300)
    path.write_text(
        "[commands]\nenabled = true\ntimeout_seconds = 60\nmemory_mb = 512\noutput_kb = 64\nprocesses = 32\n"
        '[permissions]\nallow = [["pytest"]]\ndeny = [["rm"]]\nexact = [["ls", "-l"]]\n'
    )
    file = load(path).file
    assert file.commands.model_dump() == {
        "enabled": True, "timeout_seconds": 60, "memory_mb": 512, "output_kb": 64, "processes": 32,
        "disk_mb": 2048, "sandbox": "auto",
    }  # fmt: skip
    assert (file.permissions.allow, file.permissions.deny) == ((("pytest",),), (("rm",),))


WRONG = [
    "[commands]\nenabled = 1", "[commands]\ntimeout_seconds = 0", "[commands]\ntimeout_seconds = 3601",
    "[commands]\nmemory_mb = 63", "[commands]\noutput_kb = 0", "[commands]\nprocesses = 0",
    "[commands]\nsandbox = false",
    '[permissions]\nallow = ["pytest"]', "[permissions]\nallow = [[]]", "[permissions]\nask = []",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_stand_in_the_users_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"(mistake at |setting `)(commands|permissions)\."):
        load(path)
