"""How many tests passed and failed, read from what test runners print. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from thinklsp.core.problems import Verified
from thinklsp.tools.commands import Ran
from thinklsp.tools.permission import readable
from thinklsp.tools.test_runners import Kind, kind_of

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MOST_NAMES = 50
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Counts:
    """None where the runner does not tell. `failures`: names of failed tests, as it prints them."""

    passed: int | None
    failed: int | None
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunOfTests:
    """What a run of tests has come to. `failures`: the names of tests that failed, the first fifty."""

    verified: Verified
    failures: tuple[str, ...] = ()


def plain_text(output: bytes) -> str:
    """What a command has printed, without colours and cursor movements; of a line that was written over, the last."""
    text = _ANSI.sub("", output.decode("utf-8", "replace")).replace("\r\n", "\n")
    return "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))


def run_of_tests(argv: Sequence[str], ran: Ran) -> RunOfTests | None:
    """None where the command is not known to run tests, was ended before its end, or has run none."""
    kind = kind_of(argv)
    if kind is None or ran.ended != "exit":
        return None
    text = plain_text(ran.output)
    counts = _counts(kind, text)
    ok = ran.status == 0
    if counts is None:
        # Whoever prints a summary has run nothing without one, except where nothing could be built.
        if (kind != "script" and not (kind == "cargo" and _NOT_BUILT.search(text))) or _MISSING.search(text):
            return None
        counts = Counts(None, None)
    if not counts.passed and not counts.failed and counts.passed is not None and counts.failed is not None:
        return None
    ok = ok and not counts.failed
    return RunOfTests(Verified(readable(argv), ok, counts.passed, counts.failed, ran.seconds), counts.failures)


_NOT_BUILT = re.compile(r"^error: could not compile", re.MULTILINE)
_MISSING = re.compile(r"command not found|: not found$|Missing script|No rule to make target", re.MULTILINE)


def _counts(kind: Kind, text: str) -> Counts | None:
    if kind != "script":
        return _READERS[kind](text)
    return next((counts for read in _WITHIN if (counts := read(text)) is not None), None)


_PYTEST_END = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+|no tests ran) in [\d.]+s.*$", re.MULTILINE)
_PYTEST_NAME = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


def _pytest(text: str) -> Counts | None:
    ends = _PYTEST_END.findall(text)
    if not ends:
        return None
    found = {name.rstrip("s"): int(number) for number, name in re.findall(r"(\d+) ([a-z]+)", ends[-1])}
    failed = found.get("failed", 0) + found.get("error", 0)
    return Counts(found.get("passed", 0) + found.get("xpassed", 0), failed, _names(_PYTEST_NAME.findall(text)))


_UNITTEST_END = re.compile(r"^Ran (\d+) tests? in [\d.]+s\n\n(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.MULTILINE)
_UNITTEST_NAME = re.compile(r"^(?:FAIL|ERROR): (\S+(?: \(\S+\))?)", re.MULTILINE)


def _unittest(text: str) -> Counts | None:
    ends = _UNITTEST_END.findall(text)
    if not ends:
        return None
    ran, rest = ends[-1]
    found = {name: int(number) for name, number in re.findall(r"([a-z ]+)=(\d+)", rest)}
    found = {name.strip(): number for name, number in found.items()}
    failed = found.get("failures", 0) + found.get("errors", 0) + found.get("unexpected successes", 0)
    passed = int(ran) - failed - found.get("skipped", 0) - found.get("expected failures", 0)
    # An error outside of any test, as in setUpClass, is no test that ran.
    return Counts(max(0, passed), failed, _names(_UNITTEST_NAME.findall(text)))


_CARGO_END = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;", re.MULTILINE)
_CARGO_NAME = re.compile(r"^test (\S.*?) \.\.\. FAILED$", re.MULTILINE)


def _cargo(text: str) -> Counts | None:
    ends = _CARGO_END.findall(text)
    if not ends or _NOT_BUILT.search(text):
        return None
    passed, failed = (sum(map(int, column)) for column in zip(*ends, strict=True))
    return Counts(passed, failed, _names(_CARGO_NAME.findall(text)))


_GO_TEST = re.compile(r"^--- (PASS|FAIL): (\S+) \(", re.MULTILINE)
_GO_PACKAGE = re.compile(r"^(ok|FAIL) *\t(\S+)", re.MULTILINE)


def _go(text: str) -> Counts | None:
    """Plain output names what failed only, `-v` and `-json` every test."""
    if text.lstrip().startswith("{"):
        return _go_json(text)
    packages = _GO_PACKAGE.findall(text)
    if not packages:
        return None
    tests = _GO_TEST.findall(text)
    failed = [name for outcome, name in tests if outcome == "FAIL"]
    passed = sum(outcome == "PASS" for outcome, _ in tests)
    broken = [name for outcome, name in packages if outcome == "FAIL"]
    if broken and not failed:
        return Counts(passed or None, None, _names(broken))
    # `ok` behind a package without a test of its own says so in brackets.
    if not tests and not re.search(r"^ok\s*\t(?!.*\[no tests to run\])", text, re.MULTILINE):
        return Counts(0, 0)
    return Counts(passed or None, len(failed), _names(failed))


def _go_json(text: str) -> Counts | None:
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
    return Counts(len(outcomes) - len(failed), len(failed), _names(failed))


def _jest(text: str) -> Counts | None:
    ends = re.findall(r"^Tests: +(.+), \d+ total$", text, re.MULTILINE)
    if not ends:
        return None
    return _listed(ends[-1], re.findall(r"^  ● (.+ › .+|\S.*)$", text, re.MULTILINE))


def _vitest(text: str) -> Counts | None:
    ends = re.findall(r"^ *Tests  (.+) \(\d+\)$", text, re.MULTILINE)
    if not ends:
        return None
    return _listed(ends[-1], re.findall(r"^ *FAIL  (.+)$", text, re.MULTILINE))


def _listed(end: str, names: Iterable[str]) -> Counts:
    found = {name: int(number) for number, name in re.findall(r"(\d+) ([a-z]+)", end)}
    return Counts(found.get("passed", 0), found.get("failed", 0), _names(names))


def _mocha(text: str) -> Counts | None:
    passing = re.findall(r"^  (\d+) passing \(", text, re.MULTILINE)
    failing = re.findall(r"^  (\d+) failing$", text, re.MULTILINE)
    if not passing:
        return None
    names = re.findall(r"^ {2,}\d+\) (\S.*)$", text, re.MULTILINE)
    return Counts(int(passing[-1]), int(failing[-1]) if failing else 0, _names(names))


_NODE_NAME = re.compile(
    r"^(?:not ok \d+ - (?!.* # (?:SKIP|TODO))|✖ )(?!failing tests:)(.+?)(?: \([\d.]+ms\))?$", re.MULTILINE
)


def _node(text: str) -> Counts | None:
    """`node --test`, in TAP and in its own form."""
    found = dict(re.findall(r"^(?:#|ℹ) (pass|fail|cancelled) (\d+)$", text, re.MULTILINE))
    if not {"pass", "fail"} <= found.keys():
        return None
    names = _NODE_NAME.findall(text)
    return Counts(int(found["pass"]), int(found["fail"]) + int(found.get("cancelled", 0)), _names(names))


_READERS: dict[Kind, Callable[[str], Counts | None]] = {
    "pytest": _pytest, "unittest": _unittest, "cargo": _cargo, "go": _go,
}  # fmt: skip
# In an order in which none takes the summary of another for its own.
_WITHIN = (_jest, _vitest, _node, _mocha, _pytest, _unittest, _cargo, _go)


def _names(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip()[:_LONGEST_NAME] for name in found))[:_MOST_NAMES]
