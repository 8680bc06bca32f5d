"""`thinklsp setup` for ACP clients: what is written, and that a removal gives back each byte."""

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.cli.setup.editors import EDITORS
from thinklsp.cli.setup.jetbrains import insert_entry, remove_entry
from thinklsp.cli.setup.machine import Machine
from thinklsp.cli.setup.plan import plan_removal, plan_setup
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import parse_jsonc

ROOT = Path(__file__).parents[2]
FILE = Path("/nowhere/acp.json")
ENTRY = {"command": '/a "folder"/thinklsp', "args": ["acp"], "env": {}}
WRITTEN = {"command": ENTRY["command"], "args": ["acp"]}


def make_machine(cli, platform="linux", server=None):
    return Machine(cli.environment, platform, server or (sys.executable, "-m", "thinklsp"), ROOT / "editors")


def find_agent(change):
    return parse_jsonc(change.after.decode())["agent_servers"]["thinklsp"]


@pytest.mark.parametrize("name", ["zed", "jetbrains"])
def test_the_command_is_absolute(cli, name):
    """A client may start the agent without the variables of a shell."""
    folder = cli.home / "bin"
    folder.mkdir()
    for program in ("thinklsp", "zed", "idea"):
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    cli.environment["PATH"] = str(folder)
    for server, command, args in (
        (("thinklsp",), str(folder / "thinklsp"), ["acp"]),
        (("/opt/my tools/thinklsp",), "/opt/my tools/thinklsp", ["acp"]),
        ((sys.executable, "-m", "thinklsp"), sys.executable, ["-m", "thinklsp", "acp"]),
    ):
        (change,) = plan_setup(EDITORS[name], make_machine(cli, server=server)).changes
        agent = find_agent(change)
        assert (agent["command"], agent["args"]) == (command, args)
        assert agent.get("type") == ("custom" if name == "zed" else None)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_zed_has_one_folder_on_each_platform(cli, platform):
    cli.environment["XDG_CONFIG_HOME"] = str(cli.home / "elsewhere")
    folder = cli.home / (".config" if platform == "darwin" else "elsewhere") / "zed"
    folder.mkdir(parents=True)
    (change,) = plan_setup(EDITORS["zed"], make_machine(cli, platform)).changes
    assert change.path == folder / "settings.json"


def test_an_agent_from_the_registry_is_left_alone(cli):
    folder = cli.home / ".config" / "zed"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text('{"agent_servers": {"thinklsp": {"type": "registry"},},}')
    plan = plan_setup(EDITORS["zed"], make_machine(cli))
    assert plan.is_empty
    assert "has an entry of your own" in plan.notes[0]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["b", "{", '"', "default_mcp_settings", "agent_servers"]), values, max_size=4),
    st.sampled_from([None, 0, 2, "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\ufeff", "// {\n"]),
    st.sampled_from(["", "\n", "  \n"]),
)
def test_the_entry_leaves_no_trace(value, indent, newline, head, tail):
    data = (head + json.dumps(value, indent=indent) + tail).replace("\n", newline).encode()
    agents = value.get("agent_servers", {})
    if not isinstance(agents, dict):
        with pytest.raises(ThinkLspError, match="not valid JSON with an object"):
            insert_entry(data, path=FILE, entry=ENTRY)
        return
    there = insert_entry(data, path=FILE, entry=ENTRY)
    written = {"thinklsp": WRITTEN | {"env": {"SETUP_BY": "thinklsp setup jetbrains"}}}
    assert parse_jsonc(there.decode()) == value | {"agent_servers": agents | written}
    assert insert_entry(there, path=FILE, entry=ENTRY) == there
    moved = insert_entry(there, path=FILE, entry=ENTRY | {"command": "/new"})
    assert parse_jsonc(moved.decode())["agent_servers"]["thinklsp"]["command"] == "/new"
    for each in (there, moved):
        assert remove_entry(each, path=FILE) == data


@pytest.mark.parametrize("empty", [None, b"", b"  \n", b"{}", b"{\n}\n", b"{ }", b'{"agent_servers": {\n  }}'])
def test_a_file_that_is_new_or_empty(empty):
    there = insert_entry(empty, path=FILE, entry=ENTRY)
    assert json.loads(there)["agent_servers"]["thinklsp"]["command"] == ENTRY["command"]
    assert insert_entry(there, path=FILE, entry=ENTRY) == there
    assert remove_entry(there, path=FILE) == empty
    assert remove_entry(empty, path=FILE) == empty


# What the user types around the entry: before it, behind it, on both sides, and beside the object.
TYPED = {
    "behind": ('"}}\n', '"}},\n    "b": {}\n', {"b": {}}),
    "before": ('    "thinklsp"', '    "a": {},\n    "thinklsp"', {"a": {}}),
}


@pytest.mark.parametrize("cases", [["behind"], ["before"], ["behind", "before"]])
def test_agents_that_the_user_adds_stay(cases):
    text, wanted = insert_entry(None, path=FILE, entry=ENTRY).decode(), {}
    for case in cases:
        old, new, added = TYPED[case]
        assert text.count(old) == 1
        text, wanted = text.replace(old, new), wanted | added
    assert json.loads(remove_entry(text.encode(), path=FILE)) == {"agent_servers": wanted}
    text = text.replace('{\n  "agent_servers"', '{\n  "other": 1,\n  "agent_servers"')
    assert json.loads(remove_entry(text.encode(), path=FILE)) == {"other": 1, "agent_servers": wanted}


def test_an_entry_that_the_ide_has_formatted(cli):
    file = cli.home / ".jetbrains" / "acp.json"
    file.parent.mkdir()
    machine = make_machine(cli)
    (change,) = plan_setup(EDITORS["jetbrains"], machine).changes
    file.write_text(json.dumps(json.loads(change.after), indent=4))
    assert plan_setup(EDITORS["jetbrains"], machine).is_empty
    words = f"{file} was rewritten by another program, so nothing was changed. Delete the entry `thinklsp` by hand."
    with pytest.raises(ThinkLspError, match=words):
        plan_removal(EDITORS["jetbrains"], machine)
    with pytest.raises(ThinkLspError, match=words):
        plan_setup(EDITORS["jetbrains"], make_machine(cli, server=("/moved/thinklsp",)))


def test_hints_name_files_that_exist(cli):
    """A hint must help a user who has no clone of the repository."""
    (cli.home / "vim").write_text("#!/bin/sh\n")
    (cli.home / "vim").chmod(0o755)
    cli.environment["PATH"] = str(cli.home)
    (note,) = plan_setup(EDITORS["vim"], make_machine(cli)).notes
    page = note.rpartition(" ")[2].removesuffix(".")
    assert os.path.isabs(page)
    assert Path(page).is_file()
