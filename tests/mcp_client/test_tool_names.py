"""Every provider accepts the names, and two tools never share one."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.mcp_client.tool_schemas import assign_names
from thinklsp.tools.registry import TOOLS_WITH_COMMANDS

ACCEPTED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
SERVERS = st.text("ab_-9", min_size=1, max_size=32) | st.text(min_size=1, max_size=40)
TOOLS = st.text("ab_-.9", max_size=70) | st.text(max_size=150)
KEYS = st.lists(st.tuples(SERVERS, TOOLS), max_size=30)


def name_of(server: str, tool: str) -> str:
    return assign_names([(server, tool)])[server, tool]


@given(KEYS)
def test_names_are_accepted_and_injective(keys: list[tuple[str, str]]) -> None:
    names = assign_names(keys)
    assert set(names) == set(keys)
    assert len(set(names.values())) == len(names)
    assert all(ACCEPTED.fullmatch(name) for name in names.values())
    assert not {tool.name for tool in TOOLS_WITH_COMMANDS} & set(names.values())


@given(KEYS, st.randoms())
def test_a_name_depends_only_on_the_server_and_the_tool(keys: list[tuple[str, str]], random: Random) -> None:
    names = assign_names(keys)
    random.shuffle(keys)
    assert assign_names(keys) == names
    assert all(name_of(*key) == name for key, name in names.items())


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("time", "get_current_time", "mcp__time__get_current_time"),
        ("my-server", "read-File_2", "mcp__my-server__read-File_2"),
        ("a", "_b", "mcp__a___b"),
    ],
)
def test_ordinary_names_stay_readable(server: str, tool: str, name: str) -> None:
    assert name_of(server, tool) == name


@pytest.mark.parametrize(
    ("server", "tool", "start"),
    [
        ("s", "admin.tools.list", "mcp__s__admin_tools_list_"),
        ("s", "größe", "mcp__s__gr__e_"),
        ("s", "x" * 100, "mcp__s__" + "x" * 47 + "_"),
        ("a_", "b", "mcp__a___b_"),
        ("a__b", "c", "mcp__a__b__c_"),
        ("s", "x_0123abcd", "mcp__s__x_0123abcd_"),
        ("s", "", "mcp__s___"),
    ],
)
def test_other_names_end_with_a_digest(server: str, tool: str, start: str) -> None:
    name = name_of(server, tool)
    assert re.fullmatch(re.escape(start) + "[0-9a-f]{8}", name)


def test_colliding_digests_are_replaced_by_longer_ones() -> None:
    # The digests of these two names begin with the same 8 digits.
    first, second = ("s", "x" * 60 + "47551"), ("s", "x" * 60 + "54177")
    assert name_of(*first) == name_of(*second)
    names = assign_names([first, second])
    assert len(set(names.values())) == 2
    assert all(ACCEPTED.fullmatch(name) and re.search("_[0-9a-f]{16}$", name) for name in names.values())
