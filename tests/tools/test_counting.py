"""What test runners print, read: `fixtures/test_runs` holds what real ones have printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.check_results import VerificationOutcome
from thinklsp.sandbox.process import CommandResult, EndReason
from thinklsp.tools.runners import decode_output, detect_output_kind, parse_test_run

OUTPUTS = Path(__file__).parents[1] / "fixtures" / "test_runs"

PYTEST_FAILURES = ("test_a.py::test_two", "test_a.py::test_p[a b]", "test_a.py::test_err")
# Output -> the command, its exit status, and what it says: passed, failed, names; None: no test was run.
RUNS: dict[str, tuple[str, int, tuple[int | None, int | None, tuple[str, ...]] | None]] = {
    "pytest_ok": ("pytest", 0, (2, 0, ())),
    "pytest_ok_quiet": ("python3 -m pytest -q", 0, (2, 0, ())),
    "pytest_fail": ("uv run pytest", 1, (2, 3, PYTEST_FAILURES)),
    "pytest_quiet": (".venv/bin/python -m pytest -q", 1, (2, 3, PYTEST_FAILURES)),
    "pytest_colour": ("pytest --color=yes", 1, (2, 3, PYTEST_FAILURES)),
    "pytest_collection_error": ("pytest", 2, (0, 1, ("test_b.py",))),
    "pytest_none": ("pytest -k nothing", 5, None),
    "pytest_version": ("pytest --version", 0, None),
    "pytest_collect": ("pytest --co", 0, None),
    "pytest_missing": ("python3 -m pytest", 1, None),
    "unittest_ok": ("python -m unittest -v", 0, (2, 0, ())),
    "unittest_fail": (
        "python3.11 -m unittest", 1, (1, 2, ("test_err (test_u.T.test_err)", "test_bad (test_u.T.test_bad)")),
    ),
    "unittest_import": (
        "python manage.py test", 1, (0, 1, ("test_nope (unittest.loader._FailedTest.test_nope)",)),
    ),
    "unittest_none": ("python -m unittest -k nothing", 0, None),
    "cargo_ok": ("cargo test", 0, (3, 0, ())),
    "cargo_fail": ("cargo test --offline", 101, (1, 1, ("tests::breaks",))),
    "cargo_broken": ("cargo test", 101, (None, None, ())),
    "go_ok": ("go test ./...", 0, (None, 0, ())),
    "go_fail": ("go test ./...", 1, (None, 1, ("TestBad",))),
    "go_verbose_ok": ("go test -v ./...", 0, (2, 0, ())),
    "go_verbose_fail": ("go test -v ./...", 1, (1, 1, ("TestBad",))),
    "go_broken": ("go test ./...", 1, (None, None, ("example.com/m",))),
    "go_none": ("go test -run Nothing .", 0, None),
    "npm_jest_ok": ("npm test", 0, (2, 0, ())),
    "npm_jest_fail": ("npx jest", 1, (1, 1, ("group › breaks",))),
    "npm_vitest_ok": ("pnpm test", 0, (2, 0, ())),
    "npm_vitest_fail": ("vitest run", 1, (1, 1, ("a.test.js > group > breaks",))),
    "npm_mocha_ok": ("yarn test", 0, (2, 0, ())),
    "npm_mocha_fail": ("npm run test", 1, (1, 1, ("breaks", "group"))),
    "npm_node_ok": ("npm t", 0, (2, 0, ())),
    "npm_node_fail": ("node --test", 1, (1, 1, ("group",))),
    "node_spec_fail": ("node --test", 1, (1, 1, ("group", "breaks"))),
    "npm_missing": ("npm test", 1, None),
    "make_ok": ("make test", 0, (2, 0, ())),
    "make_missing": ("make check", 2, None),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_of_tests_has_come_to(name: str) -> None:
    command, status, expected = RUNS[name]
    output = (OUTPUTS / f"{name}.txt").read_bytes()
    run = parse_test_run(command.split(), CommandResult("exit", status, output, 1.25))
    if expected is None:
        assert run is None
        return
    assert run is not None
    passed, failed, _ = expected
    assert (run.outcome.passed, run.outcome.failed, run.failures) == expected
    assert run.outcome == VerificationOutcome(command, status == 0, passed, failed, 1.25)


@pytest.mark.parametrize(
    "command", ["ls", "python app.py", "git test", "cargo build", "go vet", "make", "npm run lint"]
)
def test_other_commands_run_no_tests(command: str) -> None:
    assert detect_output_kind(command.split()) is None
    assert parse_test_run(command.split(), CommandResult("exit", 0, b"2 passed in 0.01s", 1)) is None


@pytest.mark.parametrize("ended", ["signal", "timeout", "memory", "output", "processes"])
def test_a_run_that_was_ended_counts_for_nothing(ended: EndReason) -> None:
    assert parse_test_run(["pytest"], CommandResult(ended, 0, b"2 passed in 0.01s", 1)) is None


@given(st.binary(max_size=300), st.sampled_from(sorted(RUNS)))
def test_no_output_breaks_the_reading(noise: bytes, name: str) -> None:
    output = (OUTPUTS / f"{name}.txt").read_bytes()
    for text in (noise, output[: len(noise) * 4] + noise, noise + output):
        parse_test_run(RUNS[name][0].split(), CommandResult("exit", 0, text, 1))


def test_colours_and_lines_written_over_are_left_out() -> None:
    printed = b"\x1b[1;32mok\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\r\n 10%\r 50%\r100%\n\xff"
    assert decode_output(printed) == "ok link\n100%\n\ufffd"


SENTENCES = {
    VerificationOutcome("pytest", True, 12, 0, 1.3): "Verified: `pytest` – 12 passed in 1.3 s.",
    VerificationOutcome("pytest", False, 10, 2, 1.3): "Not verified: `pytest` – 2 failed, 10 passed in 1.3 s.",
    VerificationOutcome("make test", True, None, None, 2): "Verified: `make test` – succeeded in 2.0 s.",
    VerificationOutcome("make test", False, None, None, 2): "Not verified: `make test` – failed in 2.0 s.",
    VerificationOutcome("go test", False, None, 1, 2): "Not verified: `go test` – 1 failed in 2.0 s.",
    VerificationOutcome("pytest", False, 3, 0, 2): "Not verified: `pytest` – failed, 3 passed in 2.0 s.",
}


@pytest.mark.parametrize("verified", SENTENCES, ids=str)
def test_the_sentence_for_people(verified: VerificationOutcome) -> None:
    assert verified.format_sentence() == SENTENCES[verified]
