"""`run_command`: one program on a copy of the workspace, behind the user's permission."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput
from thinklsp.tools.commands import Ran
from thinklsp.tools.permission import MOST_WORDS, readable
from thinklsp.tools.shown import shown_name, visible
from thinklsp.tools.test_counts import plain_text

_HEAD, _TAIL = 8_000, 24_000
_MOST_CHANGED = 30
_LIMITS = {"memory": "memory_mb", "output": "output_kb", "processes": "processes"}


class RunCommandArguments(Arguments):
    argv: list[str] = Field(
        min_length=1,
        max_length=MOST_WORDS,
        description="The program and its arguments, each a word of its own. There is no shell: no pipes, redirections, "
        "variables, wildcards or `&&`.",
    )
    timeout_s: int | None = Field(
        None, ge=1, le=3_600, description="Seconds after which it is ended; at most what the user allows."
    )
    cwd: str | None = Field(
        None,
        max_length=500,
        description="Folder to run in, relative to the workspace folder. Every call starts anew: none remembers it.",
    )


class RunCommand(Tool[RunCommandArguments]):
    name: ClassVar[str] = "run_command"
    description: ClassVar[str] = (
        "Run a program, such as the project's tests, a type checker or a linter, on a copy of the workspace that holds "
        "your edits of this turn. What it writes is thrown away: change files with the edit tools. There is no "
        "network. The user may be asked first and may refuse. Run the tests after your last edit."
    )
    runs: ClassVar[bool] = True
    arguments = RunCommandArguments

    def title(self, args: RunCommandArguments) -> str:
        return f"run {readable(args.argv)}"

    async def run(self, args: RunCommandArguments, context: ToolContext) -> ToolOutput:
        if context.commands is None:
            raise ToolFailed("No command can be run in this turn.")
        ran = await context.commands.run(args.argv, context.overlay, folder=args.cwd, seconds=args.timeout_s)
        return ToolOutput(told(args.argv, ran), is_error=ran.ended != "exit")


def told(argv: list[str], ran: Ran) -> str:
    """How it ended, what it changed on the copy, and the beginning and end of its output."""
    lines = [f"`{readable(argv)}` {ending(ran)} after {ran.seconds:.1f} s."]
    if ran.changed:
        names = ", ".join(shown_name(path) for path in ran.changed[:_MOST_CHANGED])
        more = f" and {len(ran.changed) - _MOST_CHANGED} more" if len(ran.changed) > _MOST_CHANGED else ""
        lines.append(f"On the copy, which is thrown away, it changed: {names}{more}.")
    output = shown_output(ran)
    lines.append(f"Output:\n{output}" if output else "It printed nothing.")
    return "\n".join(lines)


def ending(ran: Ran) -> str:
    match ran.ended:
        case "exit":
            return f"ended with exit status {ran.status}"
        case "signal":
            return f"was ended by signal {ran.status}"
        case "timeout":
            return "took too long and was ended"
        case "disk":
            return "wrote more than `disk_mb` in `[commands]` allows, or nearly filled the disk, and was ended"
        case "memory" | "output" | "processes" as limit:
            return f"passed the limit of {limit} (`{_LIMITS[limit]}` in `[commands]`) and was ended"


def shown_output(ran: Ran, head: int = _HEAD, tail: int = _TAIL) -> str:
    """Without colours, what is invisible spelled out, cut in its middle."""
    text = visible(plain_text(ran.output)).strip("\n")
    cut = f"[{ran.cut:,} bytes more were left out in the middle]\n" if ran.cut else ""
    if len(text) <= head + tail:
        return cut + text
    left_out = len(text) - head - tail
    return f"{cut}{text[:head]}\n[… {left_out:,} characters left out …]\n{text[-tail:]}"
