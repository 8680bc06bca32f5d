"""`thinklsp demo`: a whole turn without key and network, complete in a pipe, alive on a terminal, nothing left."""

import re
import signal
from importlib.resources import files

import pytest

from thinklsp.cli.demo import NEXT_STEPS

COURSE = [
    "offline: no key, no network", "A small project with a bug", "$ python -m unittest", "FAIL: test_a_book",
    "'23.77 €' != '23.79 €'", "FAILED (failures=1)", "started thinklsp", "tests/test_invoice.py, line 14:",
    "• thinklsp: fix ", "The test expects 23.79 €", "✓ read shop/", '✓ search "', "✓ edit shop/money.py",
    "✓ edit shop/invoice.py", "Two roundings", "The editor receives one edit: 2 files", "+from decimal import Decimal",
    "-    return int(float(price) * 100)", "+    return int(Decimal(price) * 100)", "+    cents = net(items)",
    "The tests run again", "OK\n", "Why did both files", "19.99 has no exact binary form", "% from the cache",
    "Next steps", "ANTHROPIC_API_KEY", "thinklsp doctor",
]  # fmt: skip

NEVER = ["\x1b", "\r", "demo-key", "Traceback", "applyEdit"]


def shown_in_order(output, fragments):
    at = 0
    for fragment in fragments:
        found = output.find(fragment, at)
        assert found >= 0, f"{fragment!r} is not shown after {output[max(0, at - 80) : at]!r} in:\n{output}"
        at = found + len(fragment)


def test_in_a_pipe_it_is_plain_and_complete(cli):
    # Settings of the person must not leak in, and FORCE_COLOR must not put colours into a file.
    theirs = {"THINKLSP_PROVIDER": "openai", "THINKLSP_MAX_STEPS": "1", "ANTHROPIC_BASE_URL": "http://192.0.2.1"}
    done = cli.run("demo", **theirs, FORCE_COLOR="1", HTTP_PROXY="http://192.0.2.1:9")
    assert (done.returncode, done.stderr) == (0, "")
    shown_in_order(done.stdout, COURSE)
    assert [word for word in NEVER if word in done.stdout] == []
    assert cli.left_behind() == []
    assert list(cli.folder.iterdir()) == []


def test_next_steps_fit_a_narrow_terminal():
    """T-Demo: the last paragraph broke in the middle of its lines."""
    assert max(map(len, NEXT_STEPS.splitlines())) + 4 <= 80


@pytest.fixture
def quick(tmp_path):
    """The packaged course at a pace at which a test can watch: files of one's own play exactly as they say."""
    text = (files("thinklsp.offline") / "scenarios" / "demo.toml").read_text()
    quick, count = re.subn(r"interval_ms = \d+", "interval_ms = 2", text, count=1)
    assert count == 1
    path = tmp_path / "quick.toml"
    path.write_text(quick)
    return path


def test_on_a_terminal_a_status_line_lives(cli, quick):
    with cli.terminal("demo", "--scenario", str(quick)) as terminal:
        assert terminal.end() == 0
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.output))
    status = [line for line in lines if re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] .* · \d+ s", line)]
    assert [word for word in ("thinking", "tokens", "writing") if not any(word in line for line in status)] == []
    assert max(len(line) for line in status) <= 100
    assert "\x1b[32m" in terminal.output
    assert "\x1b[31m" in terminal.output
    assert terminal.output.rfind("\x1b[?25h") > terminal.output.rfind("\x1b[?25l"), "the cursor must be back"
    assert "    OK" in [line.rstrip() for line in lines]
    assert cli.left_behind() == []


def test_an_answer_that_breaks_off_is_printed_once(cli, quick):
    before, _, last_step = quick.read_text().rpartition("[[turn.step]]\n")
    quick.write_text(f"{before}[[turn.step]]\nfault = {{ times = 1, cut_after_events = 24 }}\n{last_step}")
    done = cli.run("demo", "--scenario", str(quick))
    assert (done.returncode, done.stderr) == (0, "")
    assert "The connection ended" not in done.stdout
    assert done.stdout.count("19.99 has no exact binary form") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_in_the_middle_it_leaves_nothing(cli, number, code):
    with cli.terminal("demo") as terminal:
        terminal.until("The editor runs the code action")
        terminal.until("thinking")
        terminal.process.send_signal(number)
        assert terminal.end(10) == code
    assert "Traceback" not in terminal.output
    assert terminal.output.rfind("\x1b[?25h") > terminal.output.rfind("\x1b[?25l")
    assert cli.left_behind() == []


def test_in_your_own_folder_it_proposes_and_writes_nothing(cli):
    (cli.folder / "app.py").write_text("# TODO: begin\nprint('grüße')\n")
    (cli.folder / "shop").mkdir()
    before = {path: path.read_bytes() for path in cli.folder.rglob("*") if path.is_file()}
    done = cli.run("demo", "--workspace", ".")
    assert (done.returncode, done.stderr) == (0, "")
    shown_in_order(done.stdout, [str(cli.folder), "✓ read app.py", "shown but not written", "+++ b/THINKLSP-REVIEW.md",
                                 "grüße", "Nothing was written"])  # fmt: skip
    assert {path: path.read_bytes() for path in cli.folder.rglob("*") if path.is_file()} == before
    assert cli.left_behind() == []


FAILURES = [
    (["--scenario", "refusal"], "The turn ended with refusal, so no edit was sent."),
    (["--scenario", "sample"], "proposed no edit"),
    (["--scenario", "no-such"], "Cannot read the scenario 'no-such'"),
    (["--workspace", "/no/such/folder"], "does not exist"),
]


@pytest.mark.parametrize(("args", "sentence"), FAILURES)
def test_what_fails_is_said_in_a_sentence(cli, inside, args, sentence):
    done = inside("demo", *args)
    assert done.returncode == 1
    assert done.stderr.startswith("thinklsp demo: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert cli.left_behind() == []


def test_edits_that_leave_the_tests_red_are_no_success(cli, quick, tmp_path):
    text = quick.read_text()
    assert "int(Decimal(price) * 100)" in text
    path = tmp_path / "wrong.toml"
    wrong = text.replace("int(Decimal(price) * 100)", "int(Decimal(price) * 99)")
    path.write_text(wrong.replace("interval_ms = 2\n", "").replace("delay_ms = 250\n", ""))
    done = cli.run("demo", "--scenario", str(path))
    assert done.returncode == 1
    assert "The edits were applied, but the sample project's tests still fail." in done.stderr


def test_a_server_that_dies_is_said_with_its_last_words(cli, tmp_path):
    words = "raise SystemExit('libfoo is missing')"
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os, sys\nif sys.orig_argv[-1] == 'thinklsp':\n"
        f"    print({words!r}, file=sys.stderr, flush=True)\n    os._exit(3)\n"
    )
    done = cli.run("demo")
    sentence = f"The server exited before it answered a request. The last line of its log: {words}"
    assert (done.returncode, done.stderr) == (1, f"thinklsp demo: {sentence}\n")
    assert cli.left_behind() == []
