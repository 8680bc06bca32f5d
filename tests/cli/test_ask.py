"""`thinklsp ask`: the answer on standard output, the rest on standard error; files and commands only after a yes."""

import asyncio
import io
import json
import re
from contextlib import asynccontextmanager

import pytest

from tests.cli.test_terminal import Terminal
from tests.stand_ins.http_server import Simulator
from tests.support.images import png
from tests.support.outside import TURN_RESULT, USAGE
from tests.support.shadowing import needs_sandbox
from thinklsp.cli.ask import AskScreen
from thinklsp.cli.terminal import create_console
from thinklsp.core.events import RetryScheduled, TextStreamed
from thinklsp.offline.scenario import parse_scenario

SIMULATED = {"THINKLSP_PROVIDER": "simulator", "THINKLSP_SCENARIO_PAUSES": "off"}


def script(*steps):
    """A scenario of one turn."""
    return "[[turn]]\n" + "".join(f"[[turn.step]]\n{step}\n" for step in steps)


CHANGES = """block = [
  { thinking = "Two changes." },
  { tool = "edit_file", input = { path = "a.py", old_text = "x = 1", new_text = "x = 2" } },
  { tool = "write_file", input = { path = "b.py", content = "y = 1\\n" } },
]"""
CUT = 'stop_reason = "max_tokens"\n'
MADE = 'block = [{ text = "Both are \\u001b[31mmade\\u001b[0m." }]'
EDITING, EDITING_CUT = script(CHANGES, MADE), script(CHANGES, CUT + MADE)
QUESTION = '{ tool = "ask_user", input = { question = "Which colour?", options = ["red", "blue"] } }'
COMMAND = '{ tool = "run_command", input = { argv = ["echo", "a  b"] } }'
REPORT = 'block = [{ text = "I was told: {{result:1}}" }]'
ECHO = script('block = [{ text = "I heard: {{user}}" }]')


@asynccontextmanager
async def service(text):
    """The environment of a command that talks to a simulator which plays this."""
    async with Simulator(parse_scenario(text, "test")) as simulator:
        yield key_for(simulator)


def key_for(simulator):
    return {"ANTHROPIC_BASE_URL": simulator.base_url, "ANTHROPIC_API_KEY": "sk-test-key-0123456789"}


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
    assert done.stdout.endswith("or use your own scenario.\n")
    assert "You asked: What is here?" in done.stdout
    assert "The prompt is about this workspace." in done.stderr
    assert "✓ list files" in done.stderr
    assert "from the cache" in done.stderr
    assert "cost" not in done.stderr
    assert not set(cli.run("sessions").stdout.split()) & {"unknown", "$0.0000"}
    # The session is kept in the state folder, and nothing anywhere else.
    assert [path for path in cli.left_behind() if "/.local" not in path] == []


async def test_the_pieces_of_a_paused_answer_are_one_text(cli):
    paused = script('stop_reason = "pause_turn"\nblock = [{ text = "Hello wor" }]', 'block = [{ text = "ld." }]')
    async with service(paused) as env:
        assert (await ask(cli, "Hello?", **env)).stdout == "Hello world.\n"
        assert json.loads((await ask(cli, "Hello?", "--json", **env)).stdout)["text"] == "Hello world."


async def test_a_broken_answer_is_written_once(cli):
    fault = "fault = { times = 1, cut_after_events = 5, cut_cleanly = false }"
    broken = "[pacing]\nchunk_chars = 6\n" + script(fault + '\nblock = [{ text = "I say it once, whole." }]')
    async with service(broken) as env:
        done = await ask(cli, "Hello?", **env)
    assert (done.returncode, done.stdout) == (0, "I say it once, whole.\n")
    assert "etrying" not in done.stderr
    assert "discarded" not in done.stderr


def test_terminal_streams_the_answer_and_marks_void_parts(cli):
    terminal, aside = Terminal(), io.StringIO()
    with AskScreen(terminal, create_console(aside), thinking=False, tools=False) as screen:
        screen.show(TextStreamed("Ha"))
        assert terminal.getvalue() == "Ha"
        screen.show(RetryScheduled(0.0, "It broke.", restart=True))
        screen.show(TextStreamed("Whole."))
    assert terminal.getvalue() == "Ha\nWhole.\n"
    assert aside.getvalue() == "Ignore the text above: the answer is starting over.\n"


async def test_json_output_is_one_result_with_piped_prompt(cli):
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
        assert "Nothing was written; use --apply to write the changes." in shown.stderr
        assert files_of(cli.folder) == {"a.py": "x = 1\n"}

        as_json = json.loads((await ask(cli, "Change it.", "--json", **env)).stdout)
        assert as_json["edits"]["applied"] == "none"
        assert [file["status"] for file in as_json["edits"]["files"]] == ["refused", "refused"]
        assert files_of(cli.folder) == {"a.py": "x = 1\n"}

        applied = json.loads((await ask(cli, "Change it.", "--json", "--apply", "--thinking", **env)).stdout)
        assert applied["edits"]["applied"] == "all"
        uri, hunks = (cli.folder / "a.py").as_uri(), {"applied": 1, "waiting": 0}
        assert applied["edits"]["files"][0] == {"uri": uri, "status": "applied", "hunks": hunks, "reason": None}
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
            assert "Ignored AGENTS.md: you did not answer the question" in unattended.stdout + unattended.stderr
        with cli.terminal("ask", "Hello.", **env) as terminal:
            await asyncio.to_thread(terminal.until, "AGENTS.md (16 bytes). Follow these instructions?")
            await asyncio.to_thread(terminal.until, "Your choice [1-2]: ")
            terminal.type(answer)
            assert await asyncio.to_thread(terminal.end) == 0
        assert ("Always whistle." in terminal.output) is followed
        if followed:
            again = json.loads((await ask(cli, "Hello.", "--json", **env)).stdout)
            assert ("Always whistle." in again["text"], again["notices"]) == (True, [])


async def test_at_a_terminal_the_model_can_ask(cli):
    async with service(script(f"block = [{QUESTION}]", REPORT)) as env:
        with cli.terminal("ask", "Paint it.", **env) as terminal:
            await asyncio.to_thread(terminal.until, "Your choice [1-2]: ")
            terminal.type("2\n")
            assert await asyncio.to_thread(terminal.end) == 0
        assert "I was told: The user chose: blue" in terminal.output
        assert "did not answer" in (await ask(cli, "Paint it.", **env)).stdout


@pytest.mark.kernel
@needs_sandbox
async def test_the_whole_command_is_asked_about_at_the_terminal(cli):
    (cli.home / "config.toml").write_text("[commands]\nenabled = true\n")
    for choice, told in (("1", "a  b"), ("4", "did not allow")):
        async with service(script(f"block = [{COMMAND}]", REPORT)) as env:
            config = str(cli.home / "config.toml")
            with cli.terminal("ask", "Run it.", columns=200, THINKLSP_CONFIG=config, **env) as terminal:
                await asyncio.to_thread(terminal.until, "Your choice [1-4]: ")
                assert '"echo" "a \\u0020b"' in terminal.output
                assert "  3  Always allow exactly this command" in terminal.output
                terminal.type(f"{choice}\n")
                assert await asyncio.to_thread(terminal.end) == 0
            assert told in terminal.output


async def test_a_turn_without_a_whole_answer_fails_and_holds_its_edits(cli):
    (cli.folder / "a.py").write_text("x = 1\n")
    async with service(script(CUT + 'block = [{ text = "Half an ans" }]')) as env:
        done = await ask(cli, "Tell me.", **env)
        assert (done.returncode, done.stdout) == (1, "Half an ans\n")
        assert "The answer reached the output limit." in done.stderr
    async with service(EDITING_CUT) as env:
        done = await ask(cli, "Change it.", "--apply", "--json", **env)
        assert done.returncode == 1
        assert {file["status"] for file in json.loads(done.stdout)["edits"]["files"]} == {"held"}
        assert files_of(cli.folder) == {"a.py": "x = 1\n"}


async def test_a_session_goes_on(cli):
    """By `last`, by its id and by the beginning of it; only in its own folder."""
    async with Simulator(parse_scenario(ECHO * 4, "test")) as simulator:
        env = key_for(simulator)
        first = json.loads((await ask(cli, "--json", "One?", **env)).stdout)["sessionId"]
        assert json.loads((await ask(cli, "--json", "Else?", **env)).stdout)["sessionId"] != first
        for number, wish in (("Two", first), ("Three", first[:8]), ("Four", "last")):
            result = json.loads((await ask(cli, "--json", "--session", wish, f"{number}?", **env)).stdout)
            assert result["sessionId"] == first
        asked = [json.dumps(request.body["messages"]) for request in simulator.requests]
        assert [text.count("?") for text in asked[2:]] == [3, 5, 7], "each prompt is echoed once"
        assert "Else?" not in asked[-1]
        cli.folder = cli.temp
        for wish, words in ((first, "session has this id"), ("last", "no sessions yet"), ("", "session has this id")):
            done = await ask(cli, "--session", wish, "Five?", **env)
            assert (done.returncode, done.stdout) == (1, "")
            assert words in done.stderr


ERRORS = {
    "no key": (["Hello"], {}, "No model provider has a key."),
    "offline in a terminal": (["Hello"], {}, "`THINKLSP_PROVIDER=simulator`"),
    "no such file": (["Hello", "--file", "none.py"], SIMULATED, "The file none.py does not exist"),
    "outside": (["Hello", "--file", "/etc/hostname"], SIMULATED, "outside the workspace"),
    "lines": (["Hello", "--file", "a.py:9-3"], SIMULATED, "invalid line range"),
    "no model": (["Hello", "--model", ""], SIMULATED, "`model` must be at least 1 character long."),
    "no service": (["Hello"], {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "ftp://127.0.0.1"}, "base URL"),
    "no address": (["Hello"], {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://[::1"}, "from ANTHROPIC_BASE"),
}


@pytest.mark.parametrize(("args", "env", "words"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_sentence(inside, args, env, words):
    check_refusal(inside("ask", *args, **env), words)


def check_refusal(done, words):
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"thinklsp ask: [^\n]+\n", done.stderr)
    assert words in done.stderr


WRONG = {
    "THINKLSP_THINKING_MODE": ("on", "The setting `thinking.mode` was rejected: it must be one of 'auto', 'off'"),
    "THINKLSP_MAX_STEPS": ("many", "it must be a whole number. Change THINKLSP_MAX_STEPS."),
    "THINKLSP_LOG_LEVEL": ("loud", "one of debug, info, warning, error. Change THINKLSP_LOG_LEVEL."),
    "THINKLSP_PROVIDER": ("gemini", "Use `google` for Gemini."),
}


@pytest.mark.parametrize("variable", WRONG)
def test_wrong_user_setting_fails_before_any_model_call(cli, inside, variable):
    """A user who mistyped `off` must not pay for a turn that thinks."""
    wrong, words = WRONG[variable]
    check_refusal(inside("ask", "hi", **SIMULATED | {variable: wrong}), words)
    assert "[]" in inside("sessions", "list", "--json").stdout


def test_a_range_behind_the_end_of_a_file_is_told(cli, inside):
    """N27: lines 9-20 of a file of two lines were taken without a word."""
    (cli.folder / "a.py").write_text("a\nb\n")
    for lines, told in (
        ("1-2", ""),
        ("2-9", "a.py has only 2 lines. The prompt includes lines 2-2."),
        ("9", "lines 2-2."),
    ):
        done = inside("ask", "Hello", "--file", f"a.py:{lines}", **SIMULATED)
        assert (done.returncode, "has only" in done.stderr) == (0, bool(told))
        assert told in done.stderr


@pytest.mark.parametrize("args", [[], [" "], ["-"], ["--json"]])
def test_without_a_prompt_it_is_wrong_usage(cli, args):
    done = cli.run("ask", *args, **SIMULATED)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: thinklsp ask")
    assert "the prompt is empty" in done.stderr


def test_without_a_prompt_a_terminal_is_not_waited_for(cli):
    with cli.terminal("ask", **SIMULATED) as terminal:
        assert terminal.end() == 2


def test_in_the_home_folder_no_files_are_used(cli, inside):
    done = inside("ask", "Hello", **SIMULATED, HOME=str(cli.folder))
    assert done.returncode == 0
    assert f"The model cannot use files in {cli.folder}. " in done.stderr
    # N18: the setting had no name.
    assert "set `workspace.allow_home` in the user's file" in done.stderr


async def test_image_files_are_sent_or_refused_by_name(cli):
    (cli.folder / "shot.png").write_bytes(png())
    (cli.folder / "half.png").write_bytes(png()[:-4])
    async with Simulator(parse_scenario(ECHO, "test")) as simulator:
        done = await ask(cli, "What is this?", "--file", "shot.png", **key_for(simulator))
        assert (done.returncode, "- shot.png (PNG, 2 × 3 pixels" in done.stdout) == (0, True)
        [request] = [request for request in simulator.requests if request.method == "POST"]
        kinds = [part["type"] for part in request.body["messages"][-1]["content"]]
        assert kinds == ["image", "text"]
        done = await ask(cli, "And this?", "--file", "half.png", **key_for(simulator))
        assert (done.returncode, done.stdout) == (1, "")
        assert "half.png is damaged or incomplete" in done.stderr
