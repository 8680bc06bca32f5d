"""The `run_command` tool, and the permission rules for commands.

Commands run without a shell, and rules compare words exactly. If no rule matches a command, thinklsp asks the user. A
rule allows its own words, followed by plain words such as file names. Options require the user's approval, because an
option can start a program or write a file. Only common options of test runners are exempt. Commands that are too long
or invalid are denied.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.text_safety import escape_invisible, format_path
from thinklsp.core.tool_type import ToolOutput
from thinklsp.sandbox.process import CommandResult
from thinklsp.tools.runners import (
    Words,
    decode_output,
    find_runner_words,
    format_command,
    is_harmless,
    is_plain,
    quote_command,
    split_words,
)
from thinklsp.tools.tool import Arguments, Tool, ToolContext

MAX_COMMAND_WORDS = 50
MAX_COMMAND_CHARACTERS = 2_000
"""Longer commands are denied, because a user could not judge them: limits in words and in displayed characters."""

_SHELL = re.compile(r"[\s;&|<>()`$\"'*?{}!#~]|^-|^\w+=")


_BUILTINS = split_words(
    ". alias builtin cd command declare eval exec export pushd set shopt source trap typeset umask unset"
)
# Programs that can run other programs or code. A rule for one of these programs must match the entire command.
_PROGRAM_STARTERS = split_words(
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
# The folders in which projects keep their own Python interpreter.
_PROJECT_ENVIRONMENTS = (".venv/", "venv/")
_VERSION = re.compile(r"[\d.]+$")


@dataclass(frozen=True, slots=True)
class PermissionRules:
    """The user's permission rules.

    `allow` and `deny` contain the first words of commands. `exact` contains entire commands that may run.
    """

    allow: tuple[Words, ...] = ()
    deny: tuple[Words, ...] = ()
    exact: tuple[Words, ...] = ()


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval of one command. It applies only to the exact arguments and folder."""

    argv: Words
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a command. If the command is denied, `reason` is the message for the model."""

    kind: Literal["allow", "ask", "deny"]
    reason: str = ""


def decide(action: Approval, rules: PermissionRules, approvals: Collection[Approval] = ()) -> Decision:
    """Decide whether a command may run.

    Deny rules have priority over approvals, and approvals over allow rules. If nothing matches, the decision is to ask
    the user.
    """
    if (odd := explain_rejection(action)) is not None:
        return Decision("deny", odd)
    if any(_denies(rule, action.argv) for rule in rules.deny):
        return Decision("deny", "The user's rules forbid this command. Do not try it in another form.")
    if action in approvals or action.argv in rules.exact or any(_allows(rule, action.argv) for rule in rules.allow):
        return Decision("allow")
    return Decision("ask")


def explain_rejection(action: Approval) -> str | None:
    """Return the reason why a command is invalid or cannot be displayed completely, or None."""
    argv = action.argv
    if not argv or not argv[0]:
        return "The command is empty: give the program's name first, then each argument as a separate word."
    if len(argv) > MAX_COMMAND_WORDS:
        return f"The command has more than {MAX_COMMAND_WORDS} words, too many to judge. Shorten it."
    # Reject a huge command before quoting its words, which requires even more memory.
    if (
        sum(map(len, argv)) > MAX_COMMAND_CHARACTERS
        or len(quote_command(argv)) + len(action.folder or "") > MAX_COMMAND_CHARACTERS
    ):
        return f"The command is longer than {MAX_COMMAND_CHARACTERS:,} characters, too long to judge. Shorten it."
    if any("\0" in word or any("\ud800" <= char <= "\udfff" for char in word) for word in argv):
        return "The command contains a character that programs cannot receive."
    program = argv[0]
    if any(unicodedata.category(char)[0] in "CZ" or _is_joining(char) for char in program):
        return "The program name contains spaces or invisible characters. Give each word as a separate element."
    if _SHELL.search(program):
        return "There is no shell: the first word must be the program only, without variables, quotes or operators."
    if program in _BUILTINS:
        return f"There is no shell, so `{program}` does not exist. Give the folder as `cwd` in each call."
    return None


def derive_rule(argv: Words) -> tuple[Literal["allow", "exact"], Words] | None:
    """Return the rule that "Always allow" adds for a command, or None if no rule is possible.

    For a test runner, the rule also covers other tests. For any other command, the rule covers only the exact command.
    A program inside the workspace cannot have a rule, because another workspace may contain a different program at the
    same path.
    """
    words = find_runner_words(argv)
    is_named = "/" not in argv[0]
    if words is not None and _allows(words, argv) and (is_named or argv[0].startswith(_PROJECT_ENVIRONMENTS)):
        return "allow", words
    return ("exact", argv) if is_named else None


def build_question(action: Approval) -> str:
    """Build the question to the user, which includes the entire command."""
    folder = "the workspace folder" if action.folder is None else quote_command([action.folder])
    return (
        f"Run this command?\n\n{quote_command(action.argv)}\n\nFolder: {folder}. It runs in a sandbox, on a copy of "
        "the workspace that is discarded afterwards."
    )


def _denies(rule: Words, argv: Words) -> bool:
    """Return True if a deny rule matches the command.

    Deny rules ignore case and folders, so a rule for `rm` also matches `/bin/rm` and `RM`.
    """
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
    verdict = is_harmless(rule, rest)
    return all(map(is_plain, rest)) and not _can_start_programs(rule[0]) if verdict is None else verdict


def _can_start_programs(program: str) -> bool:
    name = os.path.basename(program).lower().removesuffix(".exe")
    return name in _PROGRAM_STARTERS or _VERSION.sub("", name).rstrip("-") in _PROGRAM_STARTERS


def _is_joining(char: str) -> bool:
    """Return True if a character is a combining mark, or a blank that Unicode classifies as a letter."""
    return unicodedata.category(char)[0] == "M" or char in "\u115f\u1160\u3164\uffa0\u2800"


_MAX_HEAD, _MAX_TAIL = 8_000, 24_000
_MAX_CHANGED_PATHS = 30
_LIMITS = {"memory": "memory_mb", "output": "output_kb", "processes": "processes"}


class RunCommandArguments(Arguments):
    argv: list[str] = Field(
        min_length=1,
        max_length=MAX_COMMAND_WORDS,
        description="The program and its arguments, one list element each. There is no shell: no pipes, redirections, "
        "variables, wildcards or `&&`.",
    )
    timeout_s: int | None = Field(
        None, ge=1, le=3_600, description="Time limit in seconds, at most the limit set by the user."
    )
    cwd: str | None = Field(
        None,
        max_length=500,
        description="Folder to run in, relative to the workspace folder. It applies only to this call.",
    )


class RunCommand(Tool[RunCommandArguments]):
    name: ClassVar[str] = "run_command"
    description: ClassVar[str] = (
        "Run a program, such as the project's tests, a type checker or a linter, on a copy of the workspace that "
        "includes your edits from this turn. Files that it writes are discarded: change files with the edit tools. "
        "There is no network. The user may be asked first and may refuse. Run the tests after your last edit."
    )
    runs: ClassVar[bool] = True
    arguments = RunCommandArguments

    def title(self, args: RunCommandArguments) -> str:
        return f"run {format_command(args.argv)}"

    async def run(self, args: RunCommandArguments, context: ToolContext) -> ToolOutput:
        if context.commands is None:
            raise ToolFailed("Commands cannot be run in this turn.")
        result = await context.commands.run(args.argv, context.overlay, folder=args.cwd, seconds=args.timeout_s)
        return ToolOutput(format_result(args.argv, result), is_error=result.end_reason != "exit")


def format_result(argv: list[str], result: CommandResult) -> str:
    """Format a command's result.

    It has the exit status, the files that the command changed, and the beginning and end of its output.
    """
    lines = [f"`{format_command(argv)}` {describe_ending(result)} after {result.seconds:.1f} s."]
    if result.changed_paths:
        names = ", ".join(format_path(path) for path in result.changed_paths[:_MAX_CHANGED_PATHS])
        more = (
            f" and {len(result.changed_paths) - _MAX_CHANGED_PATHS} more"
            if len(result.changed_paths) > _MAX_CHANGED_PATHS
            else ""
        )
        lines.append(f"It changed these files on the copy, which is discarded: {names}{more}.")
    output = format_output(result)
    lines.append(f"Output:\n{output}" if output else "It printed no output.")
    return "\n".join(lines)


def describe_ending(result: CommandResult) -> str:
    match result.end_reason:
        case "exit":
            return f"exited with status {result.status}"
        case "signal":
            return f"was killed by signal {result.status}"
        case "timeout":
            return "exceeded the time limit and was killed"
        case "disk":
            return "exceeded `disk_mb` in `[commands]`, or nearly filled the disk, and was killed"
        case "memory" | "output" | "processes" as limit:
            return f"exceeded the limit of {limit} (`{_LIMITS[limit]}` in `[commands]`) and was killed"


def format_output(result: CommandResult, head: int = _MAX_HEAD, tail: int = _MAX_TAIL) -> str:
    """Format a command's output, without colors and with invisible characters escaped.

    Long output is truncated in the middle.
    """
    text = escape_invisible(decode_output(result.output)).strip("\n")
    note = f"[{result.omitted_bytes:,} bytes omitted in the middle]\n" if result.omitted_bytes else ""
    if len(text) <= head + tail:
        return note + text
    left_out = len(text) - head - tail
    return f"{note}{text[:head]}\n[… {left_out:,} characters omitted …]\n{text[-tail:]}"
