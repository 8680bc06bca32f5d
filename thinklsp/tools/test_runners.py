"""The test runners that are known by their command: what it is called, and which options can do no harm. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Words = tuple[str, ...]

Kind = Literal["pytest", "unittest", "cargo", "go", "script"]
"""How the output reads; `script` starts any of them."""

_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)?)?")
_VALUE = re.compile(r"\^?[\w.][\w ./:|,*()\[\]-]*\$?|\d+")
_SCRIPTS = frozenset(("npm", "pnpm", "yarn", "bun"))
_ALONE = frozenset(("jest", "vitest", "mocha", "ava", "tap"))
_WRAPPERS = (("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("pdm", "run"), ("rye", "run"), ("npx",))


@dataclass(frozen=True, slots=True)
class _Options:
    """`flags` stand alone, `valued` take a value behind `=` or as the next word. `more`: names of tests may follow."""

    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    more: bool = True


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPTIONS: dict[str, _Options] = {
    "pytest": _Options(
        _words(
            "-q -qq -v -vv -vvv -x -s -l -ra -rA -rf -rfE --quiet --verbose --exitfirst --lf --last-failed --ff "
            "--failed-first --nf --new-first --sw --stepwise --no-header --no-summary --disable-warnings --showlocals"
        ),
        _words("-k -m -n --maxfail --tb --durations --color"),
    ),
    "unittest": _Options(
        _words("-v -q -f -b --verbose --quiet --failfast --buffer --locals"), _words("-k -s -t -p --durations")
    ),
    "cargo": _Options(
        _words(
            "-q -v --quiet --verbose --lib --bins --tests --doc --all --workspace --release --no-fail-fast --offline "
            "--locked --frozen --all-features --no-default-features -- --nocapture --ignored --include-ignored --exact "
            "--show-output"
        ),
        _words("-p --package --test --features -j --jobs --test-threads"),
    ),
    "go": _Options(_words("-v -race -short -failfast -json -cover"), _words("-run -skip -count -timeout -parallel -p")),
    "node": _Options(_words("--silent")),
    "make": _Options(more=False),
}


def runner_words(argv: Sequence[str]) -> Words | None:
    """The words at the beginning of a command that are the test runner's own; None where it is none."""
    found = _runner(argv)
    return None if found is None else tuple(argv[: found[1]])


def is_harmless(words: Words, rest: Sequence[str]) -> bool | None:
    """Whether nothing of `rest`, behind a runner's own words, but known options and what could be names of tests or
    files is left; None where `words` are no runner's."""
    found = _runner(words)
    if found is None:
        return None
    options = _OPTIONS[found[0]]
    left = list(_unknown(options, rest))
    return not left if not options.more else all(map(is_plain, left))


_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./:,+\[\]-]*")


def is_plain(word: str) -> bool:
    """Whether it could be the name of a file below the folder or of a test, and nothing else."""
    return bool(_PLAIN_WORD.fullmatch(word)) and ".." not in word.split("/")


def kind_of(argv: Sequence[str]) -> Kind | None:
    """Which output a command has if it runs tests; None where it is not known to run any."""
    for wrapper in _WRAPPERS:
        if tuple(argv[: len(wrapper)]) == wrapper:
            argv = argv[len(wrapper) :]
    if not argv:
        return None
    program = os.path.basename(argv[0])
    if _PYTHON.fullmatch(program) and os.path.basename(argv[1] if len(argv) > 1 else "") == "manage.py":
        return "unittest" if "test" in argv[2:3] else None
    if program in _ALONE:
        return "script"
    found = _runner(argv)
    if found is None:
        return None
    match found[0]:
        case "pytest" | "unittest" | "cargo" | "go" as kind:
            return kind
        case _:
            return "script"


def _runner(argv: Sequence[str]) -> tuple[str, int] | None:
    """Its options' key, and how many words are its own."""
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


def _unknown(options: _Options, rest: Sequence[str]) -> Iterator[str]:
    words = iter(rest)
    for word in words:
        name, equals, value = word.partition("=")
        if word in options.flags:
            continue
        if name in options.valued:
            given = value if equals else next(words, "")
            if not _VALUE.fullmatch(given):
                yield word
            continue
        yield word
