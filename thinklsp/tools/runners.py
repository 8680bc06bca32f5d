"""The commands of test runners: which ones are harmless, which one tests a workspace, and what their output says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from thinklsp.core.check_results import VerificationOutcome
from thinklsp.core.errors import PathRefused
from thinklsp.sandbox.process import CommandResult
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import Place

Words = tuple[str, ...]

_READABLE = re.compile(r"[A-Za-z0-9_./:,+=@%\[\]-]+")


def quote_command(argv: Sequence[str]) -> str:
    """Quote every word as ASCII-only JSON, with repeated spaces escaped, so that no character is hidden."""
    return " ".join(map(_quote_word, argv))


def format_command(argv: Sequence[str]) -> str:
    """Format a command for titles and results. Only words with special characters are quoted."""
    return " ".join(word if _READABLE.fullmatch(word) else _quote_word(word).replace("`", "\\u0060") for word in argv)


def _quote_word(word: str) -> str:
    # Escape `](`, because some editors render it as a link and hide the URL.
    text = json.dumps(word).replace("\x7f", "\\u007f").replace("](", "]\\u0028")
    return re.sub(r"(?<= ) ", lambda _: "\\u0020", text)


OutputKind = Literal["pytest", "unittest", "cargo", "go", "script"]
"""The format of the output; `script` can produce any of the other formats."""

_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)?)?")
_VALUE = re.compile(r"\^?[\w.][\w ./:|,*()\[\]-]*\$?|\d+")
_SCRIPTS = frozenset(("npm", "pnpm", "yarn", "bun"))
_SCRIPT_RUNNERS = frozenset(("jest", "vitest", "mocha", "ava", "tap"))
_WRAPPERS = (("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("pdm", "run"), ("rye", "run"), ("npx",))


@dataclass(frozen=True, slots=True)
class _Options:
    """The harmless options of a test runner.

    `flags` have no value. `value_options` have a value after `=` or in the next word. `allows_names` is true if test
    names may follow.
    """

    flags: frozenset[str] = frozenset()
    value_options: frozenset[str] = frozenset()
    allows_names: bool = True


def split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPTIONS: dict[str, _Options] = {
    "pytest": _Options(
        split_words(
            "-q -qq -v -vv -vvv -x -s -l -ra -rA -rf -rfE --quiet --verbose --exitfirst --lf --last-failed --ff "
            "--failed-first --nf --new-first --sw --stepwise --no-header --no-summary --disable-warnings --showlocals"
        ),
        split_words("-k -m -n --maxfail --tb --durations --color"),
    ),
    "unittest": _Options(
        split_words("-v -q -f -b --verbose --quiet --failfast --buffer --locals"),
        split_words("-k -s -t -p --durations"),
    ),
    "cargo": _Options(
        split_words(
            "-q -v --quiet --verbose --lib --bins --tests --doc --all --workspace --release --no-fail-fast --offline "
            "--locked --frozen --all-features --no-default-features -- --nocapture --ignored --include-ignored --exact "
            "--show-output"
        ),
        split_words("-p --package --test --features -j --jobs --test-threads"),
    ),
    "go": _Options(
        split_words("-v -race -short -failfast -json -cover"), split_words("-run -skip -count -timeout -parallel -p")
    ),
    "node": _Options(split_words("--silent")),
    "make": _Options(allows_names=False),
}


def find_runner_words(argv: Sequence[str]) -> Words | None:
    """Return the first words of a command if they start a supported test runner, or None."""
    runner = _match_runner(argv)
    return None if runner is None else tuple(argv[: runner[1]])


def is_harmless(words: Words, rest: Sequence[str]) -> bool | None:
    """Return True if `rest` contains only supported options and plain names of tests or files.

    `rest` follows the words that start the test runner. Returns None if `words` does not start a supported test runner.
    """
    runner = _match_runner(words)
    if runner is None:
        return None
    options = _OPTIONS[runner[0]]
    unknown_words = list(_find_unknown(options, rest))
    return not unknown_words if not options.allows_names else all(map(is_plain, unknown_words))


_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./:,+\[\]-]*")


def is_plain(word: str) -> bool:
    """Return True if a word can only be the name of a test or of a file below the folder."""
    return bool(_PLAIN_WORD.fullmatch(word)) and ".." not in word.split("/")


def detect_output_kind(argv: Sequence[str]) -> OutputKind | None:
    """Return the output format of a test command, or None if the command does not run tests."""
    for wrapper in _WRAPPERS:
        if tuple(argv[: len(wrapper)]) == wrapper:
            argv = argv[len(wrapper) :]
    if not argv:
        return None
    program = os.path.basename(argv[0])
    if _PYTHON.fullmatch(program) and os.path.basename(argv[1] if len(argv) > 1 else "") == "manage.py":
        return "unittest" if "test" in argv[2:3] else None
    if program in _SCRIPT_RUNNERS:
        return "script"
    runner = _match_runner(argv)
    if runner is None:
        return None
    match runner[0]:
        case "pytest" | "unittest" | "cargo" | "go" as kind:
            return kind
        case _:
            return "script"


def _match_runner(argv: Sequence[str]) -> tuple[str, int] | None:
    """Return the name of the test runner and the number of words that start it, or None."""
    if not argv:
        return None
    program, *rest = (os.path.basename(argv[0]), *argv[1:])
    if program in ("pytest", "py.test"):
        return "pytest", 1
    if _PYTHON.fullmatch(program) and rest[:1] == ["-m"] and rest[1:2] in (["pytest"], ["unittest"]):
        return rest[1], 3
    if program in _SCRIPTS:
        if rest[:1] in (["test"], ["t"]):
            return "node", 2
        return ("node", 3) if rest[:2] == ["run", "test"] else None
    if program == "node" and rest[:1] == ["--test"]:
        return "node", 2
    if program in ("cargo", "go") and rest[:1] == ["test"]:
        return program, 2
    return ("make", 2) if program in ("make", "gmake") and rest[:1] in (["test"], ["check"]) else None


def _find_unknown(options: _Options, rest: Sequence[str]) -> Iterator[str]:
    words = iter(rest)
    for word in words:
        name, equals, value = word.partition("=")
        if word in options.flags:
            continue
        if name in options.value_options:
            argument = value if equals else next(words, "")
            if not _VALUE.fullmatch(argument):
                yield word
            continue
        yield word


_MAX_TEST_FILES = 40
_TEST_FOLDERS = ("tests", "test")
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_PYTEST_SECTION = re.compile(r"^\[(?:tool[.:])?pytest\b", re.MULTILINE)
_INTERPRETERS = (".venv/bin/python", "venv/bin/python")
# The extensions of the files that each language's tests cover.
_PYTHON_FILES = frozenset(("py", "pyi", "pyx", "toml", "cfg"))
_SCRIPT_FILES = frozenset(("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts", "vue", "svelte", "json"))


@dataclass(frozen=True, slots=True)
class WorkspaceTests:
    """A command that tests the files in a folder.

    `commands` contains equivalent forms of the command, the preferred form first. `folder` is None for the root of the
    first workspace folder.
    """

    commands: tuple[Words, ...]
    folder: str | None
    extensions: frozenset[str] = frozenset()


def find_tests(overlay: EditOverlay) -> WorkspaceTests | None:
    """Return the test command for the turn's edits. It comes from the nearest enclosing folder with tests."""
    for place in overlay.list_changed():
        ending = place.label.rpartition(".")[2]
        for folder in _list_folders_above(overlay, place):
            if candidates := list(_find_folder_tests(overlay, folder)):
                return next((tests for tests in candidates if ending in tests.extensions), candidates[0])
    return None


def _list_folders_above(overlay: EditOverlay, place: Place) -> Iterator[Place]:
    """Yield the folders that contain a place, innermost first."""
    if place.root is not None and place.path is not None:
        for length in range(len(place.path.parts) - 1, -1, -1):
            yield overlay.view.build_place(place.root, place.path.parts[:length])


def _find_folder_tests(overlay: EditOverlay, folder: Place) -> Iterator[WorkspaceTests]:
    look = _FolderReader(overlay, folder)
    where = None if folder.label == "." else folder.label
    if (python := _find_python_tests(look)) is not None:
        yield WorkspaceTests(python, where, _PYTHON_FILES)
    if look.has_file("Cargo.toml"):
        yield WorkspaceTests((("cargo", "test"),), where, frozenset(("rs", "toml")))
    if look.has_file("go.mod"):
        yield WorkspaceTests((("go", "test", "./..."),), where, frozenset(("go", "mod")))
    if _has_script(look.load_text("package.json")):
        manager = next((name for lock, name in _LOCKS if look.has_file(lock)), "npm")
        yield WorkspaceTests(((manager, "test"),), where, _SCRIPT_FILES)
    if re.search(r"^test\s*:(?!=)", look.load_text("Makefile"), re.MULTILINE):
        yield WorkspaceTests((("make", "test"),), where)


_LOCKS = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"))


def _find_python_tests(reader: _FolderReader) -> tuple[Words, ...] | None:
    runner = _choose_python_runner(reader)
    if runner is None:
        return None
    own = next((path for path in _INTERPRETERS if reader.has_file(path)), None)
    if own is not None:
        return ((own, *runner),)
    alone = (("pytest",),) if runner == ("-m", "pytest") else ()
    return (("python3", *runner), ("python", *runner), *alone)


def _choose_python_runner(reader: _FolderReader) -> Words | None:
    pytest = ("-m", "pytest")
    if reader.has_file("pytest.ini") or reader.has_file("conftest.py"):
        return pytest
    if any(_PYTEST_SECTION.search(reader.load_text(name)) for name in ("pyproject.toml", "setup.cfg", "tox.ini")):
        return pytest
    for folder in (*_TEST_FOLDERS, ""):
        names = reader.list_names(folder, _TEST_FILE)
        if not names:
            continue
        texts = [reader.load_text(f"{folder}/{name}".lstrip("/")) for name in names[:_MAX_TEST_FILES]]
        if not all(re.search(r"^\s*(?:import|from) unittest", text, re.MULTILINE) for text in texts):
            return pytest
        if any(re.search(r"^\s*(?:import|from) pytest", text, re.MULTILINE) for text in texts):
            return pytest
        if folder and not reader.has_file(f"{folder}/__init__.py"):
            return ("-m", "unittest", "discover", "-s", folder)
        return ("-m", "unittest")
    return None


def _has_script(text: str) -> bool:
    """Return True if package.json contains a test script other than npm's default script, which always fails."""
    try:
        script = json.loads(text)["scripts"]["test"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(script, str) and bool(script.strip()) and "no test specified" not in script


@dataclass(frozen=True, slots=True)
class _FolderReader:
    """A reader for a folder with the turn's edits. Files that tools may not read are treated as missing."""

    overlay: EditOverlay
    folder: Place

    def has_file(self, name: str) -> bool:
        with suppress(PathRefused):
            place = self._resolve(name)
            return place is not None and self.overlay.find_kind(place) in ("file", "link")
        return False

    def load_text(self, name: str) -> str:
        with suppress(PathRefused):
            place = self._resolve(name)
            file_text = None if place is None or not self.has_file(name) else self.overlay.peek(place)
            return "" if file_text is None else file_text.text
        return ""

    def list_names(self, folder: str, pattern: re.Pattern[str]) -> list[str]:
        """Return the sorted names that match, including files on disk, the turn's edits and open documents."""
        below, names = self.folder, set[str]()
        with suppress(PathRefused):
            below = (self._resolve(folder) if folder else None) or self.folder
            listing = self.overlay.view.list_folder(below)
            names |= set() if listing is None else {*listing.files}
        for place in (*self.overlay.list_changed(), *self.overlay.view.list_open_places()):
            if place.root is below.root and place.path is not None and below.path is not None:
                *above, name = place.path.parts
                names |= {name} if tuple(above) == below.path.parts else set()
        return sorted(n for n in names if pattern.fullmatch(n) and self.has_file(f"{folder}/{n}".lstrip("/")))

    def _resolve(self, name: str) -> Place | None:
        if self.folder.root is None or self.folder.path is None:
            return None
        return self.overlay.view.build_place(self.folder.root, (*self.folder.path.parts, *name.split("/")))


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
    readers = _READERS.values() if kind == "script" else (_READERS[kind],)
    counts = next((counts for read in readers if (counts := read(text)) is not None), None)
    if counts is None:
        # A test runner without a summary has run no tests, unless the build failed.
        if (kind != "script" and not (kind == "cargo" and _NOT_BUILT.search(text))) or _MISSING.search(text):
            return None
        counts = Counts(None, None)
    if counts.passed == counts.failed == 0:
        return None
    is_ok = result.status == 0 and not counts.failed
    outcome = VerificationOutcome(format_command(argv), is_ok, counts.passed, counts.failed, result.seconds)
    names = tuple(dict.fromkeys(name.strip()[:_MAX_NAME] for name in counts.failures))
    return ParsedTestRun(outcome, names[:_MAX_NAMES])


_NOT_BUILT = re.compile(r"^error: could not compile", re.MULTILINE)
_MISSING = re.compile(r"command not found|: not found$|Missing script|No rule to make target", re.MULTILINE)
_UNITTEST_END = re.compile(r"^Ran (\d+) tests? in [\d.]+s\n\n(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.MULTILINE)
_UNITTEST_NAME = re.compile(r"^(?:FAIL|ERROR): (\S+(?: \(\S+\))?)", re.MULTILINE)
_GO_TEST = re.compile(r"^--- (PASS|FAIL): (\S+) \(", re.MULTILINE)
_GO_PACKAGE = re.compile(r"^(ok|FAIL) *\t(\S+)", re.MULTILINE)
# `go test` prints `ok` and a note in brackets for a package without tests.
_GO_TESTED = re.compile(r"^ok\s*\t(?!.*\[no tests to run\])", re.MULTILINE)


def _build_reader(end: str, passed: str, failed: str, name: str) -> Callable[[str], Counts | None]:
    """Build a parser for a test runner that ends each run with a summary, of which only the last one counts."""
    last, names = re.compile(end, re.MULTILINE), re.compile(name, re.MULTILINE)

    def read(text: str) -> Counts | None:
        ends = [match[0] for match in last.finditer(text)]
        if not ends:
            return None
        passed_count, failed_count = (sum(map(int, re.findall(word, ends[-1]))) for word in (passed, failed))
        return Counts(passed_count, failed_count, tuple(names.findall(text)))

    return read


def _read_unittest(text: str) -> Counts | None:
    ends = _UNITTEST_END.findall(text)
    if not ends:
        return None
    total, rest = ends[-1]
    figures = {name.strip(): int(number) for name, number in re.findall(r"([a-z ]+)=(\d+)", rest)}
    failed = figures.get("failures", 0) + figures.get("errors", 0) + figures.get("unexpected successes", 0)
    passed = int(total) - failed - figures.get("skipped", 0) - figures.get("expected failures", 0)
    # Errors outside tests, for example in setUpClass, do not count as tests.
    return Counts(max(0, passed), failed, tuple(_UNITTEST_NAME.findall(text)))


def _read_cargo(text: str) -> Counts | None:
    """Parse the output of `cargo test`, which has a summary for each crate."""
    ends = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed;", text, re.MULTILINE)
    if not ends or _NOT_BUILT.search(text):
        return None
    passed, failed = (sum(map(int, column)) for column in zip(*ends, strict=True))
    return Counts(passed, failed, tuple(re.findall(r"^test (\S.*?) \.\.\. FAILED$", text, re.MULTILINE)))


def _read_go(text: str) -> Counts | None:
    """Parse the output of `go test`, which names only failed tests, or every test with `-v`."""
    packages, tests = _GO_PACKAGE.findall(text), _GO_TEST.findall(text)
    if not packages:
        return None
    failed = tuple(name for outcome, name in tests if outcome == "FAIL")
    passed = sum(outcome == "PASS" for outcome, _ in tests)
    broken = tuple(name for outcome, name in packages if outcome == "FAIL")
    if broken and not failed:
        return Counts(passed or None, None, broken)
    if not tests and not _GO_TESTED.search(text):
        return Counts(0, 0)
    return Counts(passed or None, len(failed), failed)


_PASSED, _FAILED = r"(\d+) x?passed", r"(\d+) (?:failed|errors?)"
# The parsers by the format of the output, in the order in which they are tried for a test script.
_READERS: dict[str, Callable[[str], Counts | None]] = {
    "jest": _build_reader(r"^Tests: +.+, \d+ total$", _PASSED, _FAILED, r"^  ● (.+ › .+|\S.*)$"),
    "vitest": _build_reader(r"^ *Tests  .+ \(\d+\)$", _PASSED, _FAILED, r"^ *FAIL  (.+)$"),
    "node": _build_reader(
        r"^(?:#|ℹ) pass \d+\n(?:#|ℹ) fail \d+(?:\n(?:#|ℹ) cancelled \d+)?$", r"pass (\d+)", r"(?:fail|cancelled) (\d+)",
        r"^(?:not ok \d+ - (?!.* # (?:SKIP|TODO))|✖ )(?!failing tests:)(.+?)(?: \([\d.]+ms\))?$",
    ),
    "mocha": _build_reader(
        r"^  \d+ passing \(.*\)$(?:\n  \d+ pending$)?(?:\n  \d+ failing$)?", r"(\d+) passing", r"(\d+) failing",
        r"^ {2,}\d+\) (\S.*)$",
    ),
    "pytest": _build_reader(
        r"^=*\s*((?:\d+ [a-z]+(?:, )?)+|no tests ran) in [\d.]+s.*$", _PASSED, _FAILED,
        r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$",
    ),
    "unittest": _read_unittest,
    "cargo": _read_cargo,
    "go": _read_go,
}  # fmt: skip
