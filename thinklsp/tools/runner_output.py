"""Parsers for the output of test runners, which extract the numbers of passed and failed tests. All functions are
pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from thinklsp.core.check_results import VerificationOutcome
from thinklsp.tools.command_runs import CommandResult, format_command
from thinklsp.tools.runner_commands import OutputKind, detect_output_kind

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MAX_NAMES = 50
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of passed and failed tests in a test run.

    A number is None if the test runner does not report it. `failures` contains the names of failed tests.
    """

    passed: int | None
    failed: int | None
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedTestRun:
    """The parsed result of a test run. `failures` contains the names of the first 50 failed tests."""

    outcome: VerificationOutcome
    failures: tuple[str, ...] = ()


def decode_output(output: bytes) -> str:
    """Decode a command's output, and remove colors and cursor movements.

    If a program has overwritten a line, only the last version remains.
    """
    text = _ANSI.sub("", output.decode("utf-8", "replace")).replace("\r\n", "\n")
    return "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))


def parse_test_run(argv: Sequence[str], result: CommandResult) -> ParsedTestRun | None:
    """Parse the result of a test command.

    Returns None if the command is not a supported test runner, was killed, or ran no tests.
    """
    kind = detect_output_kind(argv)
    if kind is None or result.end_reason != "exit":
        return None
    text = decode_output(result.output)
    counts = _parse_counts(kind, text)
    ok = result.status == 0
    if counts is None:
        # A test runner without a summary has run no tests, unless the build failed.
        if (kind != "script" and not (kind == "cargo" and _NOT_BUILT.search(text))) or _MISSING.search(text):
            return None
        counts = Counts(None, None)
    if not counts.passed and not counts.failed and counts.passed is not None and counts.failed is not None:
        return None
    ok = ok and not counts.failed
    return ParsedTestRun(
        VerificationOutcome(format_command(argv), ok, counts.passed, counts.failed, result.seconds), counts.failures
    )


_NOT_BUILT = re.compile(r"^error: could not compile", re.MULTILINE)
_MISSING = re.compile(r"command not found|: not found$|Missing script|No rule to make target", re.MULTILINE)


def _parse_counts(kind: OutputKind, text: str) -> Counts | None:
    if kind != "script":
        return _READERS[kind](text)
    return next((counts for read in _SCRIPT_READERS if (counts := read(text)) is not None), None)


def _build_reader(end: str, name: str) -> Callable[[str], Counts | None]:
    """Build a parser for a test runner whose last line contains counts such as `1 failed, 2 passed`."""
    last, names = re.compile(end, re.MULTILINE), re.compile(name, re.MULTILINE)

    def read(text: str) -> Counts | None:
        ends = last.findall(text)
        if not ends:
            return None
        figures = {word.rstrip("s"): int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", ends[-1])}
        passed, failed = (
            figures.get("passed", 0) + figures.get("xpassed", 0),
            figures.get("failed", 0) + figures.get("error", 0),
        )
        return Counts(passed, failed, _clean_names(names.findall(text)))

    return read


_read_pytest = _build_reader(
    r"^=*\s*((?:\d+ [a-z]+(?:, )?)+|no tests ran) in [\d.]+s.*$", r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$"
)
_read_jest = _build_reader(r"^Tests: +(.+), \d+ total$", r"^  ● (.+ › .+|\S.*)$")
_read_vitest = _build_reader(r"^ *Tests  (.+) \(\d+\)$", r"^ *FAIL  (.+)$")

_UNITTEST_END = re.compile(r"^Ran (\d+) tests? in [\d.]+s\n\n(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.MULTILINE)
_UNITTEST_NAME = re.compile(r"^(?:FAIL|ERROR): (\S+(?: \(\S+\))?)", re.MULTILINE)


def _read_unittest(text: str) -> Counts | None:
    ends = _UNITTEST_END.findall(text)
    if not ends:
        return None
    total, rest = ends[-1]
    figures = {name.strip(): int(number) for name, number in re.findall(r"([a-z ]+)=(\d+)", rest)}
    failed = figures.get("failures", 0) + figures.get("errors", 0) + figures.get("unexpected successes", 0)
    passed = int(total) - failed - figures.get("skipped", 0) - figures.get("expected failures", 0)
    # Errors outside tests, for example in setUpClass, do not count as tests.
    return Counts(max(0, passed), failed, _clean_names(_UNITTEST_NAME.findall(text)))


_CARGO_END = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;", re.MULTILINE)
_CARGO_NAME = re.compile(r"^test (\S.*?) \.\.\. FAILED$", re.MULTILINE)


def _read_cargo(text: str) -> Counts | None:
    ends = _CARGO_END.findall(text)
    if not ends or _NOT_BUILT.search(text):
        return None
    passed, failed = (sum(map(int, column)) for column in zip(*ends, strict=True))
    return Counts(passed, failed, _clean_names(_CARGO_NAME.findall(text)))


_GO_TEST = re.compile(r"^--- (PASS|FAIL): (\S+) \(", re.MULTILINE)
_GO_PACKAGE = re.compile(r"^(ok|FAIL) *\t(\S+)", re.MULTILINE)


def _read_go(text: str) -> Counts | None:
    """Parse the output of `go test`.

    By default, `go test` names only failed tests. With `-v` or `-json`, it names every test.
    """
    if text.lstrip().startswith("{"):
        return _read_go_json(text)
    packages = _GO_PACKAGE.findall(text)
    if not packages:
        return None
    tests = _GO_TEST.findall(text)
    failed = [name for outcome, name in tests if outcome == "FAIL"]
    passed = sum(outcome == "PASS" for outcome, _ in tests)
    broken = [name for outcome, name in packages if outcome == "FAIL"]
    if broken and not failed:
        return Counts(passed or None, None, _clean_names(broken))
    # `go test` prints `ok` and a note in brackets for a package without tests.
    if not tests and not re.search(r"^ok\s*\t(?!.*\[no tests to run\])", text, re.MULTILINE):
        return Counts(0, 0)
    return Counts(passed or None, len(failed), _clean_names(failed))


def _read_go_json(text: str) -> Counts | None:
    outcomes: dict[tuple[str, str], str] = {}
    broken = False
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if not isinstance(event, dict) or event.get("Action") not in ("pass", "fail"):
            continue
        if isinstance(name := event.get("Test"), str):
            if "/" not in name:
                outcomes[str(event.get("Package")), name] = event["Action"]
        else:
            broken |= event["Action"] == "fail"
    failed = [name for (_, name), action in outcomes.items() if action == "fail"]
    if not outcomes and not broken:
        return None
    if broken and not failed:
        return Counts(len(outcomes) or None, None)
    return Counts(len(outcomes) - len(failed), len(failed), _clean_names(failed))


def _read_mocha(text: str) -> Counts | None:
    passing = re.findall(r"^  (\d+) passing \(", text, re.MULTILINE)
    failing = re.findall(r"^  (\d+) failing$", text, re.MULTILINE)
    if not passing:
        return None
    names = re.findall(r"^ {2,}\d+\) (\S.*)$", text, re.MULTILINE)
    return Counts(int(passing[-1]), int(failing[-1]) if failing else 0, _clean_names(names))


_NODE_NAME = re.compile(
    r"^(?:not ok \d+ - (?!.* # (?:SKIP|TODO))|✖ )(?!failing tests:)(.+?)(?: \([\d.]+ms\))?$", re.MULTILINE
)


def _read_node(text: str) -> Counts | None:
    """Parse the output of `node --test`, in TAP format or in Node's own format."""
    figures = dict(re.findall(r"^(?:#|ℹ) (pass|fail|cancelled) (\d+)$", text, re.MULTILINE))
    if not {"pass", "fail"} <= figures.keys():
        return None
    names = _NODE_NAME.findall(text)
    return Counts(int(figures["pass"]), int(figures["fail"]) + int(figures.get("cancelled", 0)), _clean_names(names))


_READERS: dict[OutputKind, Callable[[str], Counts | None]] = {
    "pytest": _read_pytest, "unittest": _read_unittest, "cargo": _read_cargo, "go": _read_go,
}  # fmt: skip
# Parsers for the output of a test script, in the order in which they are tried.
_SCRIPT_READERS = (
    _read_jest,
    _read_vitest,
    _read_node,
    _read_mocha,
    _read_pytest,
    _read_unittest,
    _read_cargo,
    _read_go,
)


def _clean_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip()[:_MAX_NAME] for name in names))[:_MAX_NAMES]
