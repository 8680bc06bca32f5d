"""`thinklsp ask`: the answer on standard output, the rest on standard error, and files only after a yes."""

import asyncio
import io
import json
import re
from contextlib import asynccontextmanager

import pytest

from tests.cli.test_terminal import Terminal
from tests.support.outside import TURN_RESULT, USAGE
from thinklsp.cli.ask_screen import AskScreen
from thinklsp.cli.terminal import console_for
from thinklsp.core.events import RetryScheduled, TextStreamed
from thinklsp.simulator.scenario import parse
from thinklsp.simulator.server import Simulator

SIMULATED = {"THINKLSP_PROVIDER": "simulator"}

EDITING = """
[[turn]]
[[turn.step]]
block = [
  { thinking = "Two changes." },
  { tool = "edit_file", input = { path = "a.py", old_text = "x = 1", new_text = "x = 2" } },
  { tool = "write_file", input = { path = "b.py", content = "y = 1\\n" } },
]
[[turn.step]]
block = [{ text = "Both are \\u001b[31mmade\\u001b[0m." }]
"""
ASKING = """
[[turn]]
[[turn.step]]
block = [{ tool = "ask_user", input = { question = "Which colour?", options = ["red", "blue"] } }]
[[turn.step]]
block = [{ text = "I was told: {{result:1}}" }]
"""
ECHO = """
[[turn]]
[[turn.step]]
block = [{ text = "I heard: {{user}}" }]
"""
CUT = """
[[turn]]
[[turn.step]]
stop_reason = "max_tokens"
block = [{ text = "Half an ans" }]
"""
EDITING_CUT = EDITING.replace(
    "[[turn.step]]\nblock = [{ text", '[[turn.step]]\nstop_reason = "max_tokens"\nblock = [{ text'
)


@asynccontextmanager
async def service(text):
    """The environment of a command that talks to a simulator which plays this."""
    async with Simulator(parse(text, "test")) as simulator:
        yield {"ANTHROPIC_BASE_URL": simulator.base_url, "ANTHROPIC_API_KEY": "sk-test-key-0123456789"}


async def ask(cli, *args, stdin="", **env):
    done = await asyncio.to_thread(cli.run, "ask", *args, stdin=stdin, **env)
    assert "sk-test-key" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    return done


def files_of(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_the_answer_alone_is_on_standard_output(cli):
    (cli.folder / "app.py").write_text("print()\n")
    done = cli.run("ask", "What is here?", "--file", "app.py:1", "--thinking", **SIMULATED)
    assert done.returncode == 0
    assert done.stdout.startswith("I am the offline simulator")
    assert done.stdout.endswith("to get other answers.\n")
    assert "You asked: What is here?" in done.stdout
    assert "I am asked about something in this workspace." in done.stderr
    assert "✓ list files" in done.stderr
    assert "from the cache" in done.stderr
    # The session is kept in the state folder, and nothing anywhere else.
    assert [path for path in cli.left_behind() if "/.local" not in path] == []


PAUSED = """
[[turn]]
[[turn.step]]
stop_reason = "pause_turn"
block = [{ text = "Hello wor" }]
[[turn.step]]
block = [{ text = "ld." }]
"""


async def test_the_pieces_of_a_paused_answer_are_one_text(cli):
    async with service(PAUSED) as env:
        assert (await ask(cli, "Hello?", **env)).stdout == "Hello world.\n"
        assert json.loads((await ask(cli, "Hello?", "--json", **env)).stdout)["text"] == "Hello world."


def broken(times):
    fault = f"fault = {{ times = {times}, cut_after_events = 5, cut_cleanly = false }}"
    return (
        f'[pacing]\nchunk_chars = 6\n[[turn]]\n[[turn.step]]\n{fault}\nblock = [{{ text = "I say it once, whole." }}]'
    )


async def test_a_broken_answer_is_written_once(cli):
    """A-5."""
    async with service(broken(2)) as env:
        done = await ask(cli, "Hello?", **env)
    assert (done.returncode, done.stdout) == (0, "I say it once, whole.\n")
    assert len(re.findall(r"Asking again", done.stderr)) == 2
    assert "discarded" not in done.stderr
    async with service(broken(9)) as env:
        done = await ask(cli, "Hello?", **env)
    assert (done.returncode, done.stdout) == (1, "I say it once, who\n")


def test_a_terminal_shows_the_answer_as_it_comes_and_which_part_is_void(cli):
    """A-5."""
    terminal, aside = Terminal(), io.StringIO()
    with AskScreen(terminal, console_for(aside), thinking=False, tools=False) as screen:
        screen.show(TextStreamed("Ha"))
        assert terminal.getvalue() == "Ha"
        screen.show(RetryScheduled(0.0, "It broke.", restart=True))
        screen.show(TextStreamed("Whole."))
    assert terminal.getvalue() == "Ha\nWhole.\n"
    assert aside.getvalue() == "It broke. Asking again at once. What was written above is discarded.\n"


async def test_json_is_one_turn_result_and_the_prompt_may_come_through_a_pipe(cli):
    async with service(ECHO) as env:
        done = await ask(cli, "--json", stdin="Is this a pipe?\n", **env)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result.keys() == TURN_RESULT
    assert result["usage"].keys() == USAGE
    assert (result["stopReason"], result["edits"], result["thinking"]) == ("end_turn", None, None)
    assert "Is this a pipe?" in result["text"]


async def test_changes_are_written_only_on_demand(cli):
    (cli.folder / "a.py").write_text("x = 1\n")
    async with service(EDITING) as env:
        shown = await ask(cli, "Change it.", **env)
        assert shown.returncode == 0
        assert "-x = 1\n+x = 2\n" in shown.stdout
        assert "+++ b/b.py" in shown.stdout
        assert "Both are <U+001B>[31mmade" in shown.stdout
        assert "Nothing was written; give --apply to write." in shown.stderr
        assert files_of(cli.folder) == {"a.py": "x = 1\n"}

        as_json = json.loads((await ask(cli, "Change it.", "--json", **env)).stdout)
        assert as_json["edits"]["applied"] == "none"
        assert [file["status"] for file in as_json["edits"]["files"]] == ["refused", "refused"]
        assert files_of(cli.folder) == {"a.py": "x = 1\n"}

        applied = json.loads((await ask(cli, "Change it.", "--json", "--apply", "--thinking", **env)).stdout)
        assert applied["edits"]["applied"] == "all"
        assert applied["edits"]["files"][0] == {
            "uri": (cli.folder / "a.py").as_uri(),
            "status": "applied",
            "hunks": {"applied": 1, "waiting": 0},
            "reason": None,
        }
        assert applied["thinking"] == "Two changes."
        assert files_of(cli.folder) == {"a.py": "x = 2\n", "b.py": "y = 1\n"}


@pytest.mark.parametrize(("answer", "written"), [("y\n", True), ("\n", False)])
async def test_at_a_terminal_a_yes_is_asked_for(cli, answer, written):
    (cli.folder / "a.py").write_text("x = 1\n")
    async with service(EDITING) as env:
        with cli.terminal("ask", "Change it.", **env) as terminal:
            await asyncio.to_thread(terminal.until, "Write these changes? [y/N]")
            terminal.type(answer)
            assert await asyncio.to_thread(terminal.end) == 0
    assert "\x1b[31m-x = 1" in terminal.output
    assert ("b.py" in files_of(cli.folder)) is written
    assert ("written: a.py" in terminal.output) is written


@pytest.mark.parametrize(("answer", "followed"), [("1\n", True), ("2\n", False), ("\n", False)])
async def test_at_a_terminal_it_asks_whether_instructions_are_followed(cli, answer, followed):
    (cli.folder / "AGENTS.md").write_text("Always whistle.\n")
    async with service(ECHO) as env:
        # Nobody is there to be asked, or a program reads the answer.
        for options in ((), ("--json",)):
            unattended = await ask(cli, "Hello.", *options, **env)
            assert "whistle" not in unattended.stdout
            assert "AGENTS.md is not followed: the question whether to" in unattended.stdout + unattended.stderr
        with cli.terminal("ask", "Hello.", **env) as terminal:
            await asyncio.to_thread(terminal.until, "AGENTS.md (16 bytes). Shall they be followed?")
            await asyncio.to_thread(terminal.until, "Your choice [1-2]: ")
            terminal.type(answer)
            assert await asyncio.to_thread(terminal.end) == 0
        assert ("Always whistle." in terminal.output) is followed
        if followed:
            again = json.loads((await ask(cli, "Hello.", "--json", **env)).stdout)
            assert ("Always whistle." in again["text"], again["notices"]) == (True, [])


async def test_at_a_terminal_the_model_can_ask(cli):
    async with service(ASKING) as env:
        with cli.terminal("ask", "Paint it.", **env) as terminal:
            await asyncio.to_thread(terminal.until, "Your choice [1-2]: ")
            terminal.type("2\n")
            assert await asyncio.to_thread(terminal.end) == 0
        assert "I was told: The user chose: blue" in terminal.output
        unattended = await ask(cli, "Paint it.", **env)
        assert "gave no answer" in unattended.stdout


async def test_a_turn_without_a_whole_answer_fails_and_holds_its_edits(cli):
    (cli.folder / "a.py").write_text("x = 1\n")
    async with service(CUT) as env:
        done = await ask(cli, "Tell me.", **env)
        assert (done.returncode, done.stdout) == (1, "Half an ans\n")
        assert "The answer was cut at the output limit." in done.stderr
    async with service(EDITING_CUT) as env:
        done = await ask(cli, "Change it.", "--apply", "--json", **env)
        assert done.returncode == 1
        assert {file["status"] for file in json.loads(done.stdout)["edits"]["files"]} == {"held"}
        assert files_of(cli.folder) == {"a.py": "x = 1\n"}


async def test_a_session_goes_on(cli):
    """By `last`, by its id and by the beginning of it; only in its own folder."""
    async with Simulator(parse(ECHO * 4, "test")) as simulator:
        env = {"ANTHROPIC_BASE_URL": simulator.base_url, "ANTHROPIC_API_KEY": "sk-test-key-0123456789"}
        first = json.loads((await ask(cli, "--json", "One?", **env)).stdout)["sessionId"]
        other = json.loads((await ask(cli, "--json", "Else?", **env)).stdout)["sessionId"]
        assert other != first
        for number, wish in (("Two", first), ("Three", first[:8]), ("Four", "last")):
            result = json.loads((await ask(cli, "--json", "--session", wish, f"{number}?", **env)).stdout)
            assert result["sessionId"] == first
        asked = [json.dumps(request.body["messages"]) for request in simulator.requests]
        assert [text.count("?") for text in asked[2:]] == [3, 5, 7], "each prompt is echoed once"
        assert "Else?" not in asked[-1]
        cli.folder = cli.temp
        for wish, words in ((first, "no such session here"), ("last", "no session here yet"), ("", "no such session")):
            done = await ask(cli, "--session", wish, "Five?", **env)
            assert (done.returncode, done.stdout) == (1, "")
            assert words in done.stderr


ERRORS = {
    "no key": (["Hello"], {}, "No model provider has a key."),
    "no such file": (["Hello", "--file", "none.py"], SIMULATED, "There is no file none.py"),
    "outside": (["Hello", "--file", "/etc/hostname"], SIMULATED, "outside the workspace"),
    "lines": (["Hello", "--file", "a.py:9-3"], SIMULATED, "names no lines"),
    "no model": (["Hello", "--model", ""], SIMULATED, "The model must be at least 1 character long."),
    "no service": (["Hello"], {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "ftp://127.0.0.1"}, "base URL"),
    "no address": (["Hello"], {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://[::1"}, "from ANTHROPIC_BASE"),
}


@pytest.mark.parametrize(("args", "env", "words"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_sentence(inside, args, env, words):
    done = inside("ask", *args, **env)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"thinklsp ask: [^\n]+\n", done.stderr)
    assert words in done.stderr


WRONG = {
    "THINKLSP_THINKING_MODE": ("on", "The setting thinking.mode was refused: it must be one of 'auto', 'off'"),
    "THINKLSP_MAX_STEPS": ("many", "it must be a whole number. Change THINKLSP_MAX_STEPS."),
    "THINKLSP_LOG_LEVEL": ("loud", "one of debug, info, warning, error. Change THINKLSP_LOG_LEVEL."),
    "THINKLSP_PROVIDER": ("gemini", "For Gemini it is google."),
}


@pytest.mark.parametrize("variable", WRONG)
def test_a_wrong_setting_of_the_user_ends_it_before_any_model_call(cli, inside, variable):
    """N1: a user who mistyped `off` must not pay for a turn that thinks."""
    wrong, words = WRONG[variable]
    done = inside("ask", "hi", **SIMULATED | {variable: wrong})
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"thinklsp ask: [^\n]+\n", done.stderr)
    assert words in done.stderr
    assert "[]" in inside("sessions", "list", "--json").stdout


def test_a_wrong_thinking_mode_in_the_users_file_ends_it(cli, inside):
    """N1."""
    config = cli.home / "config.toml"
    config.write_text('[thinking]\nmode = "on"\n')
    done = inside("ask", "hi", THINKLSP_CONFIG=str(config), **SIMULATED)
    assert (done.returncode, done.stdout) == (1, "")
    assert "thinking.mode was refused" in done.stderr
    assert "Change it in your config.toml." in done.stderr


@pytest.mark.parametrize("args", [[], [" "], ["-"], ["--json"]])
def test_without_a_prompt_it_is_wrong_usage(cli, args):
    """A: contract §1, exit code 2."""
    done = cli.run("ask", *args, **SIMULATED)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: thinklsp ask")
    assert "the prompt is empty" in done.stderr


def test_without_a_prompt_a_terminal_is_not_waited_for(cli):
    with cli.terminal("ask", **SIMULATED) as terminal:
        assert terminal.end() == 2


@pytest.mark.parametrize("source", ["environment", "file"])
def test_a_display_of_summary_shows_the_thinking_without_an_option(cli, inside, source):
    """O7."""
    config = cli.home / "config.toml"
    config.write_text('[thinking]\ndisplay = "summary"\n')
    variable = {"THINKLSP_THINKING_DISPLAY": "summary"}
    more = variable if source == "environment" else {"THINKLSP_CONFIG": str(config)}
    assert "I am asked about something in this workspace." in inside("ask", "Hello", **SIMULATED, **more).stderr
    assert "I am asked about something" not in inside("ask", "Hello", **SIMULATED).stderr


def test_in_the_home_folder_no_files_are_used(cli, inside):
    done = inside("ask", "Hello", **SIMULATED, HOME=str(cli.folder))
    assert done.returncode == 0
    assert "No files are used." in done.stderr
