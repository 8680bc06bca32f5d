"""`thinklsp doctor`: what would be used and why, a fix for each problem, and never a key."""

import asyncio
import json
import os
import re

import pytest

from tests.stand_ins.http_server import Simulator
from tests.support.skill_folders import write_skill
from thinklsp.offline.scenario import load_scenario
from thinklsp.sessions.state_folder import resolve_state_folder

KEY = "sk-ant-secret-0123456789abcdef"


def report_of(inside, code, **env):
    """The JSON report; the words for people have been checked for the key, too."""
    for form in ([], ["--json"]):
        done = inside("doctor", *form, **env)
        assert (done.returncode, done.stderr) == (code, "")
        assert KEY not in done.stdout
        assert "\x1b" not in done.stdout
    return json.loads(done.stdout)


def test_without_a_key_it_says_what_to_set(cli, inside):
    report = report_of(inside, 1)
    assert report["canRun"] is False
    assert report["model"] is None
    assert [p for p in report["problems"] if "ANTHROPIC_API_KEY" in p]
    folder = report["store"]["folder"]
    assert folder == resolve_state_folder({"HOME": str(cli.home)} | cli.environment) or "home" in folder
    assert cli.left_behind() == []


async def test_with_a_key_it_says_what_and_why(cli):
    async with Simulator(load_scenario("sample")) as simulator:
        env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": simulator.base_url, "THINKLSP_EFFORT": "low"}
        plain, as_json = [await asyncio.to_thread(cli.run, "doctor", *form, **env) for form in ([], ["--json"])]
        # Each knocks without a key, and asks what the model can do; no model call.
        expected = [("POST", "/", None), ("GET", "/v1/models/claude-opus-5-5", None)] * 2
        assert [(request.method, request.path, request.body) for request in simulator.requests] == expected
        assert ["x-api-key" in request.headers for request in simulator.requests] == [False, True] * 2
    assert KEY not in plain.stdout + plain.stderr + as_json.stdout + as_json.stderr
    assert (plain.returncode, plain.stderr) == (0, "")
    words, report = plain.stdout, json.loads(as_json.stdout)
    model = report["model"]
    assert (report["canRun"], report["reachable"], report["problems"]) == (True, True, [])
    efforts = ["low", "medium", "high", "xhigh", "max"]
    limits = {"contextWindow": 1_000_000, "maxTokens": 128_000, "models": None}
    assert model["capabilities"] == {"thinking": ["adaptive"], "efforts": efforts, **limits}
    assert (model["provider"], model["keySource"]) == ("anthropic", "the environment variable ANTHROPIC_API_KEY")
    assert (model["effort"], model["effortSource"]) == ("low", "environment")
    assert (model["baseUrl"], model["baseUrlSource"]) == (simulator.base_url, "ANTHROPIC_BASE_URL")
    for shown in (model["keySource"], model["id"], "reachable", "thinklsp is ready to run a turn"):
        assert shown in words
    assert "thinking adaptive; effort low, medium, high, xhigh, max" in words


def test_the_simulator_needs_nothing(inside):
    report = report_of(inside, 0, THINKLSP_PROVIDER="simulator")
    assert report["model"]["provider"] == "simulator"
    assert report["reachable"] is None
    shown = [" ".join(line.split()) for line in inside("doctor", THINKLSP_PROVIDER="simulator").stdout.splitlines()]
    assert "key not needed" in shown
    assert "provider simulator (offline) environment · answers come from a script, not from a model" in shown
    assert "price free" in shown


def test_skills_are_counted_and_faulty_ones_are_problems(cli, inside):
    variables = {"THINKLSP_PROVIDER": "simulator", "THINKLSP_CONFIG": str(cli.home / "config.toml")}
    report = report_of(inside, 0, **variables)
    assert report["skills"] == {"folder": str(cli.home / "skills"), "skills": [], "problems": []}
    write_skill(cli.home / "skills", "mine")
    write_skill(cli.folder / ".agents/skills", "review")
    write_skill(cli.folder / ".claude/skills", "bad", "# No front matter\n")
    report = report_of(inside, 0, **variables)
    assert [skill["name"] for skill in report["skills"]["skills"]] == ["mine", "review"]
    fault = "Ignored the skill .claude/skills/bad/SKILL.md: It does not begin with front matter"
    assert [problem.startswith(fault) for problem in report["problems"]] == [True]
    shown = [" ".join(line.split()) for line in inside("doctor", **variables).stdout.splitlines()]
    assert "skills 2 mine, review" in shown
    assert any(line.startswith(f"! {fault}") for line in shown)


def write(path, text, mode):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


CONFIGS = {
    "open to others": ('effort = "low"', 0o666, "Run chmod 600"),
    "no TOML": ("effort = ", 0o600, "not valid TOML"),
    "a typo": ("[network]\nproxi = 'x'", 0o600, "network.proxi"),
}


@pytest.mark.parametrize(("text", "mode", "words"), CONFIGS.values(), ids=CONFIGS)
def test_a_user_file_that_cannot_be_used_is_the_problem(inside, tmp_path, text, mode, words):
    env = {"THINKLSP_CONFIG": write(tmp_path / "config.toml", text, mode), "ANTHROPIC_API_KEY": KEY}
    report = report_of(inside, 1, **env)
    assert [problem for problem in report["problems"] if words in problem]
    assert report["settings"] is None
    shown = [" ".join(line.split()) for line in inside("doctor", **env).stdout.splitlines()]
    assert f"settings {env['THINKLSP_CONFIG']} see the problem below" in shown


def test_a_rejected_setting_keeps_a_turn_from_running(inside):
    """N16: it said that a turn could run, and `ask` refused it."""
    report = report_of(inside, 1, THINKLSP_PROVIDER="simulator", THINKLSP_EFFORT="hgh")
    assert [problem for problem in report["problems"] if "Change THINKLSP_EFFORT." in problem]


def test_an_unreachable_host_and_an_address_that_cannot_work(inside):
    report = report_of(inside, 1, ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL="http://127.0.0.1:9")
    assert report["reachable"] is False
    assert report["model"]["baseUrl"] == "http://127.0.0.1:9"
    for address in (f"http://user:{KEY}@127.0.0.1:9", "http://[::1", f"http://127.0.0.1:9/v1?k={KEY}"):
        report = report_of(inside, 1, ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL=address)
        assert (report["reachable"], report["model"]) == (None, None)
        assert [problem for problem in report["problems"] if "The base URL of anthropic, from ANTHROPIC" in problem]


def test_the_own_folder_is_looked_at(inside, tmp_path):
    state = tmp_path / "state"
    env = {"THINKLSP_PROVIDER": "simulator", "THINKLSP_STATE_DIR": str(state)}
    assert report_of(inside, 0, **env)["problems"] == []
    assert not state.exists()
    state.mkdir(mode=0o755)
    write(state / "thinklsp.log", "x", 0o644)
    report = report_of(inside, 0, **env)
    assert report["store"]["logBytes"] == 1
    folder, log = report["problems"]
    assert f"Run `chmod 700 {state}`" in folder
    assert f"Run `chmod 600 {state / 'thinklsp.log'}`" in log
    state.chmod(0o700)
    (state / "thinklsp.log").chmod(0o600)
    assert report_of(inside, 0, **env)["problems"] == []


@pytest.mark.parametrize("variable", ["THINKLSP_CONFIG", "THINKLSP_STATE_DIR"])
def test_relative_path_is_rejected_and_home_path_is_used(cli, inside, variable):
    """The folder that a server is started in may be the repository that was opened."""
    for place in (cli.folder, cli.home):
        (place / "own").mkdir()
        write(place / "own" / "config.toml", f'model = "{place.name}"', 0o600)

    def used(path):
        report = report_of(inside, 0, THINKLSP_PROVIDER="simulator", **{variable: path})
        where = report["settings"]["file"] if variable == "THINKLSP_CONFIG" else report["store"]["folder"]
        return where, [each for each in report["problems"] if f"{variable} is ignored" in each]

    usual, nothing = used(" ")
    assert nothing == []
    for relative in ("own/config.toml", "./own/config.toml", "own"):
        where, told = used(relative)
        assert (where, len(told)) == (usual, 1)
    assert used("~/own/config.toml") == (str(cli.home / "own" / "config.toml"), [])


CONFIG = "config/config.toml"
HEADERS = '[providers.anthropic]\nheaders = { "X-Team" = "blue" }\n'
OPEN = {
    "its log": ("state/sessions/sessions.db-wal", 0o640, "Run `chmod 600 {path}`."),
    "a damaged one": ("state/sessions/sessions.db.corrupt-2026", 0o604, "Run `chmod 600 {path}`."),
    "a copy of it": ("state/sessions/sessions.db.before-version-1", 0o622, "Run `chmod 600 {path}`."),
    "the folder of sessions": ("state/sessions", 0o755, "{path} can be read by other users. Run `chmod 700 {path}`."),
    "settings, to write": (CONFIG, 0o620, "ignored because other users can write to it. Run chmod 600 {path}."),
    "settings, to read": (CONFIG, 0o644, "can be read by other users. Run `chmod 600 {path}`."),
    "permissions": ("config/permissions.toml", 0o602, "because other users can write to it. Run chmod 600 {path}."),
    "the folder of settings": ("config", 0o775, "can change the settings folder {path}. Run `chmod 700 {path}`."),
}


@pytest.fixture
def own(tmp_path):
    """State and settings as they should be, and the variables that say where they are."""
    for name in ("state/sessions", "config"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name).chmod(0o700)
    (tmp_path / "state").chmod(0o700)
    for name in ("sessions.db.corrupt-2026", "sessions.db.before-version-1"):
        write(tmp_path / "state/sessions" / name, "", 0o600)
    write(tmp_path / CONFIG, HEADERS, 0o600)
    write(tmp_path / "config/permissions.toml", "", 0o600)
    places = {"THINKLSP_STATE_DIR": str(tmp_path / "state"), "THINKLSP_CONFIG": str(tmp_path / CONFIG)}
    return {"THINKLSP_PROVIDER": "simulator", **places}


@pytest.mark.parametrize(("name", "mode", "words"), OPEN.values(), ids=OPEN)
def test_readable_file_is_reported_with_chmod_command(own, inside, tmp_path, name, mode, words):
    assert report_of(inside, 0, **own)["problems"] == []
    path = tmp_path / name
    path.touch()
    path.chmod(mode)
    report = report_of(inside, 1 if name == CONFIG and mode & 0o022 else 0, **own)
    assert [problem.endswith(words.format(path=path)) for problem in report["problems"]] == [True]
    found = {file["path"]: file for file in report["files"]}[str(path)]
    assert found == {"path": str(path), "mode": f"{mode:04o}", "mine": True, "problem": report["problems"][0]}


def test_readable_database_is_reported_once(own, inside, tmp_path):
    path = tmp_path / "state/sessions/sessions.db"
    write(path, "", 0o644)
    problem = f"! {path} can be read by other users. Run `chmod 600 {path}`."
    assert [problem in inside("doctor", **own).stdout for _ in range(2)] == [True, False]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.kernel
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", [CONFIG, "config/permissions.toml", "config", "state/sessions/sessions.db-wal"])
def test_what_belongs_to_somebody_else_is_named(own, inside, tmp_path, name):
    (tmp_path / name).touch()
    os.chown(tmp_path / name, 12345, 12345)
    report = report_of(inside, 1 if name == CONFIG else 0, **own)
    [problem] = report["problems"]
    assert "belongs to another user" in problem
    assert str(tmp_path / name) in problem
    assert [file["mine"] for file in report["files"] if file["path"] == str(tmp_path / name)] == [False]


def test_a_state_folder_that_is_a_file(inside, tmp_path):
    place = write(tmp_path / "state", "", 0o600)
    report = report_of(inside, 0, THINKLSP_PROVIDER="simulator", THINKLSP_STATE_DIR=place)
    assert "is not a folder" in report["problems"][0]


def test_servers_are_named_and_a_mistake_is_a_problem(cli, inside):
    config = cli.home / "config.toml"
    config.write_text('[mcp.servers.a]\ncommand = "x"\n[mcp.servers.b]\nenabled = false\n[mcp.servers.c]\n')
    config.chmod(0o600)
    report = report_of(inside, 0, THINKLSP_CONFIG=str(config), THINKLSP_PROVIDER="simulator")
    assert [server["name"] for server in report["mcp"]["servers"]] == ["a"]
    assert report["mcp"]["disabled"] == ["b"]
    assert [problem for problem in report["problems"] if "The MCP server `c` in your config.toml is off" in problem]


def test_the_acp_report_names_the_command_and_the_key(inside):
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


def test_the_acp_report_without_a_key_names_the_setup(inside):
    done = inside("doctor", "--acp")
    assert (done.returncode, done.stderr) == (1, "")
    assert "! Run `thinklsp acp --setup` to store a key that every client finds." in done.stdout
    assert inside("doctor", "--acp", THINKLSP_PROVIDER="simulator").returncode == 0
    assert inside("doctor", "--acp", "--json").returncode == 2


def test_the_acp_report_works_without_a_home(cli, inside, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    del cli.environment["HOME"]
    assert "command " in inside("doctor", "--acp", THINKLSP_CONFIG=str(cli.home / "none.toml")).stdout
