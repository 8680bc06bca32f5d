"""The `run_command` tool, which runs a program on a copy of the workspace if the user permits it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.text_safety import escape_invisible, format_path
from thinklsp.core.tool_type import ToolOutput
from thinklsp.tools.command_runs import MAX_COMMAND_WORDS, CommandResult, format_command
from thinklsp.tools.runner_output import decode_output
from thinklsp.tools.tool import Arguments, Tool, ToolContext

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
    """Format a command's result: its exit status, the files that it changed, and the beginning and end of its
    output."""
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
    """Format a command's output, without colors and with invisible characters escaped. Long output is truncated in the
    middle."""
    text = escape_invisible(decode_output(result.output)).strip("\n")
    note = f"[{result.omitted_bytes:,} bytes omitted in the middle]\n" if result.omitted_bytes else ""
    if len(text) <= head + tail:
        return note + text
    left_out = len(text) - head - tail
    return f"{note}{text[:head]}\n[… {left_out:,} characters omitted …]\n{text[-tail:]}"
