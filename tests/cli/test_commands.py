"""The command line itself, `config` and `simulate`."""

import json
import re
import signal
import subprocess
import sys

import pytest

from thinklsp import __version__
from thinklsp.cli.config import settings_table
from thinklsp.cli.main import COMMANDS, run
from thinklsp.settings import KEYS, Settings

# The documented defaults and choices, from the public contract.
DOCUMENTED = {
    "provider": ["auto", "anthropic", "openai", "google", "openai-compatible", "simulator"],
    "model": [None],
    "effort": ["auto", "low", "medium", "high", "xhigh", "max"],
    "effortByAction": [{}],
    "thinking.mode": ["auto", "off", "adaptive", "manual", "normal", "ultra"],
    "thinking.budgetTokens": [10000],
    "thinking.display": ["status", "summary", "off"],
    "thinking.summary": ["auto", "concise", "detailed"],
    "maxTokens": ["auto"],
    "maxSteps": [32],
    "budget.usdPerTurn": [None],
    "budget.tokensPerTurn": [None],
    "budget.usdPerDay": [None],
    "compaction.auto": [True],
    "compaction.threshold": [0.75],
    "compaction.by": ["thinklsp", "provider"],
    "compaction.thinkingAfter": ["keep", "off"],
    "edits.review": ["auto", "always", "never"],
    "verify": ["auto", "always", "off"],
    "actions.disabled": [[]],
    "chat.fileSuffix": [".chat.md"],
}

TWO_STEPS = """
[[turn]]
[[turn.step]]
block = [{ tool = "list_files" }]
[[turn.step]]
block = [{ text = "Done." }]
"""

WRONG = [
    ["nonsense"], ["--nonsense"], ["--stdio", "more"], ["config"], ["config", "nonsense"], ["demo", "--nonsense"],
    ["doctor", "more"], ["ask", "a", "b"], ["ask", "a", "--effort", "huge"], ["simulate", "--port", "70000"],
    ["simulate", "--port", "many"], ["--log-level"], ["--log-level", "loud"], ["--stdio", "--log-level", "critical"],
]  # fmt: skip


@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_wrong_usage_is_exit_code_2(inside, args):
    done = inside(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: thinklsp")


def test_the_exit_code_reaches_the_shell(cli):
    done = cli.run("nonsense")
    assert done.returncode == 2
    assert "'nonsense'" in done.stderr


def test_version_and_help(cli):
    assert cli.run("--version").stdout == f"thinklsp {__version__}\n"
    told = cli.run("--help")
    assert told.returncode == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in told.stdout] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(inside, name):
    told = inside(name, "--help")
    assert told.returncode == 0
    assert told.stdout.startswith(f"usage: thinklsp {name}")
    assert COMMANDS[name] in inside("--help").stdout


def part_of(schema, key):
    part = schema
    for name in key.split("."):
        part = part["properties"][name]
        if "$ref" in part:
            part = {**schema["$defs"][part["$ref"].rpartition("/")[2]], **part}
    return part


def test_the_schema_holds_the_documented_settings(inside):
    done = inside("config", "schema")
    schema = json.loads(done.stdout)
    assert set(KEYS) == set(DOCUMENTED)
    for key, (default, *others) in DOCUMENTED.items():
        part = part_of(schema, key)
        assert part["default"] == default, key
        assert part["description"], key
        assert "enum" not in part or part["enum"] == [default, *others], key
    assert schema["additionalProperties"] is False
    nested = {}
    for key, (default, *_) in DOCUMENTED.items():
        place = nested
        *groups, leaf = key.split(".")
        for group in groups:
            place = place.setdefault(group, {})
        place[leaf] = default
    assert Settings.model_validate(nested) == Settings()


def test_the_table_names_every_setting_once_with_its_default_first(inside):
    done = inside("config", "table")
    assert done.stdout == settings_table() + "\n"
    rows = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == [f"| `{key}`" for key in KEYS]
    for row, (key, choices) in zip(rows, ((key, DOCUMENTED[key]) for key in KEYS), strict=True):
        words = [choice if isinstance(choice, str) else json.dumps(choice) for choice in choices if choice is not None]
        shown = [f"`{word}`" for word in words] or ["none"]
        assert row[1].startswith(", ".join(shown)), key


def test_a_reader_who_has_enough_is_no_failure_to_explain(cli):
    with subprocess.Popen(
        cli.argv("config", "schema"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.env()
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("words", [["ask", "hi"], ["sessions", "list"]])
def test_a_folder_that_is_gone_is_told(cli, monkeypatch, capsys, words):
    """Within this process: Python's own start may have something to say there, too."""
    for name, value in cli.env(THINKLSP_PROVIDER="simulator").items():
        monkeypatch.setenv(name, value)
    (cli.folder / "gone").mkdir()
    monkeypatch.chdir(cli.folder / "gone")
    (cli.folder / "gone").rmdir()
    with pytest.raises(SystemExit) as end:
        sys.exit(run(words))
    told = capsys.readouterr().err
    assert (end.value.code, len(told.splitlines())) == (1, 1)
    assert told.startswith(f"thinklsp {words[0]}: ")
    assert "cannot be used: No such file or directory. Go to another" in told


@pytest.mark.parametrize("words", [["config", "schema"], ["doctor"], ["ask", "hi"]])
def test_output_that_cannot_be_written_is_told(cli, words):
    argv = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *cli.argv(*words)]
    env = cli.env(THINKLSP_PROVIDER="simulator")
    done = subprocess.run(argv, cwd=cli.folder, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    told = done.stderr.decode()
    assert (done.returncode, "Traceback" in told) == (1, False)
    *_, last = told.splitlines()
    assert last.startswith(f"thinklsp {words[0]}: ")
    assert "could not go on: No space left on device." in last


def test_simulate_tells_how_to_use_it_and_what_was_asked(cli, tmp_path):
    scenario = tmp_path / "mine.toml"
    scenario.write_text(TWO_STEPS)
    argv = cli.argv("simulate", "--scenario", str(scenario), "--port", "0")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cli.env()) as process:
        assert re.search(r"“mine” on http://127\.0\.0\.1:\d+", process.stdout.readline())
        lines = [process.stdout.readline().removeprefix("export ").split() for _ in range(4)]
        paths = ("messages", "responses", "gemini", "chat/completions")
        for exports, path in zip(lines, paths, strict=True):
            done = cli.run("ask", "Hello", **dict(export.split("=", 1) for export in exports))
            assert done.returncode == 0, done.stderr
            told = [process.stdout.readline() for _ in range(3 if path.startswith("chat") else 2)]
            assert path in told[-1]
            assert [line.partition(": ")[2] for line in told[-2:]] == [
                f"200 (turn 1, step {step})\n" for step in (1, 2)
            ]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


def test_simulate_says_when_a_port_is_taken(cli):
    argv = cli.argv("simulate")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=cli.env()) as process:
        port = re.search(r":(\d+) ", process.stdout.readline())[1]
        done = cli.run("simulate", "--port", port)
        process.send_signal(signal.SIGINT)
    assert done.returncode == 1
    assert done.stderr.startswith(f"thinklsp simulate: The simulator cannot listen on 127.0.0.1:{port}")
