"""The MCP servers of the user's file: the values of an entry, and mistakes that turn off one server only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.settings.test_sources import SECRET, editor, user
from thinklsp.core.errors import SettingsError
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.mcp_client.server_entries import list_disabled_servers, list_user_servers
from thinklsp.settings.sources import EditorSettings

ALL_KEYS = """
[mcp]
project_env = ["HOME_TOKEN"]
[mcp.servers.time]
command = "uvx"
args = ["mcp-server-time", "--local-timezone", "Europe/Berlin"]
env = { TOKEN = "t" }
cwd = "/srv"
tools = ["get_*"]
deny = ["get_secret"]
ask = "always"
timeout_s = 5
start_timeout_s = 2.5
sandbox = true
[mcp.servers.far]
url = "https://mcp.example.com/mcp"
headers = { X-Team = "blue" }
token_command = ["pass", "show", "mcp"]
[mcp.servers.off]
command = "x"
enabled = false
"""


def test_an_entry_becomes_a_configuration(tmp_path: Path) -> None:
    mine = user(ALL_KEYS, tmp_path)
    servers, problems = list_user_servers(mine)
    assert problems == mine.problems == ()
    command = ("uvx", "mcp-server-time", "--local-timezone", "Europe/Berlin")
    far, time = servers
    assert time == ServerConfig(
        "time", command, {"TOKEN": "t"}, "/srv", None, {}, (), ("get_*",), ("get_secret",), "always", 5.0, 2.5, True
    )
    assert far == ServerConfig(
        "far",
        url="https://mcp.example.com/mcp",
        headers={"X-Team": "blue"},
        token_command=("pass", "show", "mcp"),
    )
    assert list_disabled_servers(mine) == ("off",)
    assert mine.file.mcp.project_env == ("HOME_TOKEN",)


def test_the_default_of_the_sandbox_counts_for_programs_only(tmp_path: Path) -> None:
    toml = '[mcp]\nsandbox = true\n[mcp.servers.a]\ncommand = "x"\n[mcp.servers.b]\nurl = "https://x"\n'
    toml += '[mcp.servers.c]\ncommand = "x"\nsandbox = false\n'
    servers, problems = list_user_servers(user(toml, tmp_path))
    assert ([server.is_sandboxed for server in servers], problems) == ([True, False, False], ())


WRONG: dict[str, tuple[str, str]] = {
    "nothing": ("", "it needs either `command` or `url`"),
    "both": ('command = "x"\nurl = "https://x"', "it needs either `command` or `url`"),
    "an unknown key": ('command = "x"\ntimeout = 5', "the key `timeout` is unknown (did you mean `timeout_s`?)"),
    "a list for a program": ('command = ["x", "y"]', "write its arguments into `args`"),
    "an empty program": ('command = ""', "`command` must be at least 1 character long"),
    "a blank program": ('command = " "', "its command is empty"),
    "a text for arguments": (f'command = "x"\nargs = "{SECRET}"', "`args` must be a list"),
    "a number for an argument": ('command = "x"\nargs = ["a", 5]', "`args.1` must be a text"),
    "a null character": ('command = "x"\nargs = ["a\\u0000"]', "a character that no program can receive"),
    "a name of a variable": (f'command = "x"\nenv = {{ "{SECRET}=" = "1" }}', "the names in `env` must consist of"),
    "a value of a variable": ('command = "x"\nenv = { A = 5 }', "`env.A` must be a text"),
    "a relative folder": ('command = "x"\ncwd = "src"', "`cwd` must begin with / or ~/"),
    "headers of a program": ('command = "x"\nheaders = {}', "`headers` does not apply to a server with `command`"),
    "arguments of a URL": ('url = "https://x"\nargs = []', "`args` does not apply to a server with `url`"),
    "no certificate": (f'url = "http://{SECRET}.example.com"', "`url` must use https"),
    "a file": ('url = "file:///etc/passwd"', "`url` must begin with https://"),
    "a password": (f'url = "https://me:{SECRET}@example.com"', "`url` contains a user name or password"),
    "a broken URL": ('url = "https://[x"', "`url` is not a valid URL"),
    "a line break in a header": (
        'url = "https://x"\nheaders = { A = "a\\r\\nB: c" }',
        "characters that cannot be sent",
    ),
    "a header of ours": ('url = "https://x"\nheaders = { Mcp-Method = "x" }', "the header `Mcp-Method` is set by"),
    "no header": ('url = "https://x"\nheaders = { "a b" = "x" }', "`a b` is not the name of a header"),
    "a time of nought": ('command = "x"\ntimeout_s = 0', "`timeout_s` must be at least 1"),
    "a long time": ('command = "x"\ntimeout_s = 601', "`timeout_s` must be at most 600"),
    "endless": ('command = "x"\nstart_timeout_s = nan', "`start_timeout_s` must be"),
    "a word for a switch": ('command = "x"\nenabled = "no"', "`enabled` must be true or false"),
    "an unknown policy": ('command = "x"\nask = "sometimes"', "`ask` must be one of 'always', 'once' or 'never'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_turns_off_one_server_and_nothing_else(tmp_path: Path, case: str) -> None:
    toml, sentence = WRONG[case]
    mine = user(f'effort = "low"\n[mcp.servers.good]\ncommand = "x"\n[mcp.servers.bad]\n{toml}\n', tmp_path)
    servers, [problem] = list_user_servers(mine)
    assert [server.name for server in servers] == ["good"]
    assert problem.startswith("The MCP server `bad` in your config.toml is off: ")
    assert sentence in problem
    assert SECRET not in problem
    assert mine.from_file == {"effort": "low"}


@pytest.mark.parametrize("name", ["a b", "", "a" * 33, "é", "a.b", "a\\u202eb"])
def test_a_wrong_name_is_shown_without_invisible_characters(tmp_path: Path, name: str) -> None:
    servers, [problem] = list_user_servers(user(f'[mcp.servers."{name}"]\ncommand = "x"\n', tmp_path))
    assert servers == ()
    assert "its name must be 1 to 32 letters" in problem
    assert problem.isprintable()


def test_an_entry_that_is_no_table_is_off(tmp_path: Path) -> None:
    servers, [problem] = list_user_servers(user("[mcp.servers]\nx = 5\n", tmp_path))
    assert (servers, problem) == ((), "The MCP server `x` in your config.toml is off: it must be a table.")


def test_http_is_allowed_on_this_machine(tmp_path: Path) -> None:
    for number, host in enumerate(("localhost:8000", "127.0.0.1", "[::1]:8000")):
        servers, problems = list_user_servers(user(f'[mcp.servers.a]\nurl = "http://{host}/mcp"\n', tmp_path))
        assert (len(servers), problems) == (1, ()), number


def test_more_servers_than_the_limit_are_named(tmp_path: Path) -> None:
    toml = "".join(f'[mcp.servers.s{number}]\ncommand = "x"\n' for number in range(40))
    servers, problems = list_user_servers(user(toml, tmp_path))
    assert len(servers) == 32
    assert problems == ("Your config.toml names 40 MCP servers. Only the first 32 are used.",)


def test_a_mistake_in_the_section_itself_names_the_key(tmp_path: Path) -> None:
    for toml, sentence in (
        ("[mcp]\nsandbx = true", r"Did you mean `mcp\.sandbox`\?"),
        ('[mcp]\nproject_env = ["A-B"]', r"at mcp\.project_env\.1"),
        ("mcp = 5", "at mcp"),
        ("[mcp]\nservers = []", r"at mcp\.servers"),
    ):
        with pytest.raises(SettingsError, match=sentence):
            user(toml, tmp_path)


@pytest.mark.parametrize(
    "raw",
    [
        {"mcp": {"servers": {"x": {"command": "x"}}}},
        {"mcp.servers.x.command": "x"},
        {"mcpServers": {"x": {"command": "x"}}},
        {"thinklsp": {"mcp": {"sandbox": False, "servers": {"x": {"url": "https://x"}}}}},
        {"ui": {"mcp": {"servers": {"x": {"command": "x"}}}}},
    ],
)
def test_editor_settings_add_no_server(raw: object) -> None:
    mine = user()
    settings, sentences = EditorSettings().apply_configuration(raw, mine)
    assert settings.values == editor({}).values
    assert any("mcp" in sentence and "your own config.toml" in sentence for sentence in sentences)
    assert list_user_servers(mine) == ((), ())


def test_no_value_of_a_secret_is_shown(tmp_path: Path) -> None:
    toml = f'[mcp.servers.a]\ncommand = "x"\nenv = {{ T = "{SECRET}" }}\n'
    toml += f'[mcp.servers.b]\nurl = "https://x"\nheaders = {{ A = "{SECRET}" }}\n'
    mine = user(toml, tmp_path)
    servers, _ = list_user_servers(mine)
    assert len(servers) == 2
    assert SECRET not in repr(servers) + repr(mine)
