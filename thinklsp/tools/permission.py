"""Which commands may run: the user's rules and an argv in, a decision out. Pure.

There is no shell: every word goes to the program as it stands, and words are compared exactly, one by one. No list of
harmless commands exists; without a rule every command is asked about. An allow rule means its own words, and more words
only as far as they are plain: names of files and tests. An option that the rule does not name is asked about, since it
can hand on to another program (`-exec`, `--pre`) or write (`--output`); known options of test runners excepted. What
cannot be judged or shown is denied.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from thinklsp.tools.test_runners import is_harmless, is_plain, runner_words

Words = tuple[str, ...]

MOST_WORDS = 50
MOST_SHOWN = 2_000
"""Words of a command, and characters of it as it is shown: what is longer is denied, since nobody would read it."""

_SHELL = re.compile(r"[\s;&|<>()`$\"'*?{}!#~]|^-|^\w+=")
_READABLE = re.compile(r"[A-Za-z0-9_./:,+=@%\[\]-]+")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILTINS = _names(
    ". alias builtin cd command declare eval exec export pushd set shopt source trap typeset umask unset"
)
# Programs whose operands are programs, code or a task of the workspace: a rule for one of them means its exact words.
_HANDING_ON = _names(
    "ash bash busybox csh dash fish ksh nu pwsh powershell rbash sh tcsh zsh expect wish tclsh osascript "
    "awk gawk mawk nawk sed gsed ed ex m4 bc dc vi view vim nvim emacs gdb sqlite3 "
    "bun deno elixir erl ghci java julia lua node perl php python pypy r rscript ruby scala swift "
    "at batch bwrap capsh chroot chrt cpulimit dbus-run-session direnv doas docker entr env fakeroot firejail flock "
    "ionice ip kubectl ltrace nice nohup nsenter parallel pkexec podman rlwrap run0 run-parts runuser screen script "
    "setarch setpriv setsid ssh start-stop-daemon stdbuf strace su sudo systemd-run taskset time timeout tmux unbuffer "
    "unshare valgrind watch watchexec xargs xvfb-run fd fdfind find gfind tar zip git hg svn "
    "ant asdf bazel bunx cargo cmake conda gmake go gradle gradlew hatch just make mamba mise mvn mvnw ninja nox npm "
    "npx pdm pipenv pipx pnpm poetry rake rye scons tox uv uvx yarn"
)
# Where a project's own interpreter stands: the same words mean the same thing in each.
_OF_PROJECTS = (".venv/", "venv/")
_VERSION = re.compile(r"[\d.]+$")


@dataclass(frozen=True, slots=True)
class Rules:
    """The user's. `allow`, `deny`: beginnings of commands; `exact`: whole commands that run without a question."""

    allow: tuple[Words, ...] = ()
    deny: tuple[Words, ...] = ()
    exact: tuple[Words, ...] = ()


@dataclass(frozen=True, slots=True)
class Approval:
    """What one yes is for: this argv, run there, and nothing else."""

    argv: Words
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """`why`: for the model, where it is denied."""

    kind: Literal["allow", "ask", "deny"]
    why: str = ""


def decide(action: Approval, rules: Rules, granted: Collection[Approval] = ()) -> Decision:
    """Deny wins over everything, then what was granted for the session, then the rules; all else is asked about."""
    if (odd := refused(action)) is not None:
        return Decision("deny", odd)
    if any(_denies(rule, action.argv) for rule in rules.deny):
        return Decision("deny", "The user's rules forbid this command. Do not try it in another form.")
    if action in granted or action.argv in rules.exact or any(_allows(rule, action.argv) for rule in rules.allow):
        return Decision("allow")
    return Decision("ask")


def refused(action: Approval) -> str | None:
    """Why such a command can be no command, or could not be shown whole; None where it can be asked about."""
    argv = action.argv
    if not argv or not argv[0]:
        return "The command is empty: give the program's name first, then each argument as a word of its own."
    if len(argv) > MOST_WORDS:
        return f"The command has more than {MOST_WORDS} words; nobody could judge it. Make it shorter."
    # Measured before anything is made of it.
    if sum(map(len, argv)) > MOST_SHOWN or len(quoted(argv)) + len(action.folder or "") > MOST_SHOWN:
        return f"The command is longer than {MOST_SHOWN:,} characters; nobody could judge it. Make it shorter."
    if any("\0" in word or any("\ud800" <= char <= "\udfff" for char in word) for word in argv):
        return "The command holds a character that no program can be given."
    program = argv[0]
    if any(unicodedata.category(char)[0] in "CZ" or _is_joining(char) for char in program):
        return "The name of the program holds spaces or invisible characters. Each word is an element of its own."
    if _SHELL.search(program):
        return "There is no shell: the first word is the program alone, without variables, quotes or operators."
    if program in _BUILTINS:
        return f"There is no shell, so `{program}` does not exist. Give the folder as `cwd`; every call starts anew."
    return None


def rememberable(argv: Words) -> tuple[Literal["allow", "exact"], Words] | None:
    """What an "always" stands for. A test runner's own words, so that it may be asked for other tests; of any other
    command exactly this one. None where it is not offered: a program that the workspace brings may be another
    elsewhere."""
    words = runner_words(argv)
    named = "/" not in argv[0]
    if words is not None and _allows(words, argv) and (named or argv[0].startswith(_OF_PROJECTS)):
        return "allow", words
    return ("exact", argv) if named else None


def quoted(argv: Sequence[str]) -> str:
    """Every word as JSON in plain ASCII, runs of blanks spelled out: what is shown decodes to exactly these words."""
    return " ".join(map(_quoted, argv))


def readable(argv: Sequence[str]) -> str:
    """For titles and results: words quoted only where they need it."""
    return " ".join(word if _READABLE.fullmatch(word) else _quoted(word).replace("`", "\\u0060") for word in argv)


def question(action: Approval) -> str:
    """What the user is asked, the whole command in it."""
    folder = "the workspace folder" if action.folder is None else _quoted(action.folder)
    return (
        f"Run this command?\n\n{quoted(action.argv)}\n\nFolder: {folder}. It runs in a sandbox, on a copy of the "
        "workspace that is thrown away."
    )


def _quoted(word: str) -> str:
    # Editors may take `](` for the middle of a link, and show its words alone.
    text = json.dumps(word).replace("\x7f", "\\u007f").replace("](", "]\\u0028")
    return re.sub(r"(?<= ) ", lambda _: "\\u0020", text)


def _denies(rule: Words, argv: Words) -> bool:
    """Wider than allowing: a rule for `rm` means `/bin/rm` and `RM` as well."""
    if not rule:
        return False
    programs = {argv[0].casefold(), os.path.basename(argv[0]).casefold()}
    rest = [word.casefold() for word in argv[1 : len(rule)]]
    return rule[0].casefold() in programs and [word.casefold() for word in rule[1:]] == rest


def _allows(rule: Words, argv: Words) -> bool:
    if not rule or argv[: len(rule)] != rule:
        return False
    rest = argv[len(rule) :]
    if not rest:
        return True
    known = is_harmless(rule, rest)
    return all(map(is_plain, rest)) and not _hands_on(rule[0]) if known is None else known


def _hands_on(program: str) -> bool:
    name = os.path.basename(program).lower().removesuffix(".exe")
    return name in _HANDING_ON or _VERSION.sub("", name).rstrip("-") in _HANDING_ON


def _is_joining(char: str) -> bool:
    """Marks that change how the letter before them looks, and blanks filed under letters."""
    return unicodedata.category(char)[0] == "M" or char in "\u115f\u1160\u3164\uffa0\u2800"
