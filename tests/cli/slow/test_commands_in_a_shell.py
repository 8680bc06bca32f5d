"""The commands as a shell starts them: full disks, closed pipes, names that a stream cannot hold, the simulator."""

import re
import signal
import subprocess
import sys

import pytest

TWO_STEPS = '[[turn]]\n[[turn.step]]\nblock=[{tool="list_files"}]\n[[turn.step]]\nblock=[{text="Done."}]'


def test_a_reader_who_has_enough_is_no_failure_to_explain(cli):
    with subprocess.Popen(
        cli.argv("config", "schema"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.env()
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


def run_in_shell(cli, words, **more):
    """A real process, whose descriptors a shell can close."""
    argv = ("sh", "-c", f'exec "$0" -m thinklsp {words}', sys.executable)
    env = cli.env(THINKLSP_PROVIDER="simulator", **more)
    return subprocess.run(
        argv, cwd=cli.folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60
    )


def test_a_name_that_the_stream_cannot_hold_is_escaped(cli):
    done = run_in_shell(cli, "ask --file 'n\u00e4 \u2713\x1b' x", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert done.stderr == b"thinklsp ask: The file n\\xe4 \\u2713<U+001B> does not exist.\n"


UNWRITABLE = {
    "config schema >/dev/full": "thinklsp config: cannot write the output: No space left on device.",
    "doctor >/dev/full": "thinklsp doctor: cannot write the output: No space left on device.",
    "ask hi >/dev/full": "thinklsp ask: cannot write the output: No space left on device.",
    "ask x >&-": "standard output is closed",
    "--help >/dev/full": "thinklsp: cannot write the output: No space left on device.",
    "--version >/dev/full": "thinklsp: cannot write the output: No space left on device.",
    "mcp test --help >/dev/full": "thinklsp mcp test: cannot write the output: No space left on device.",
}


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("words", UNWRITABLE)
def test_output_that_cannot_be_written_is_a_failure(cli, words, unbuffered):
    done = run_in_shell(cli, words, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    assert UNWRITABLE[words] in done.stderr.decode().splitlines()[-1]


def test_simulate_tells_how_to_use_it_and_what_was_asked(cli, tmp_path):
    scenario = tmp_path / "mine.toml"
    scenario.write_text(TWO_STEPS)
    argv = cli.argv("simulate", "--scenario", str(scenario), "--port", "0")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cli.env()) as process:
        assert re.search(r"“mine” on http://127\.0\.0\.1:\d+", process.stdout.readline())
        exports = process.stdout.readline().removeprefix("export ").split()
        done = cli.run("ask", "Hello", **dict(export.split("=", 1) for export in exports))
        assert done.returncode == 0, done.stderr
        told = [process.stdout.readline() for _ in range(2)]
        assert told == [f"POST /v1/messages: 200 (turn 1, step {step})\n" for step in (1, 2)]
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
