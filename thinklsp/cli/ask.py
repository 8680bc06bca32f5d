"""Run one chat turn in the terminal, with the same engine that editors use.

The answer goes to standard output, and everything else goes to standard error. Proposed changes are shown as a diff and
written only if you agree or if you use --apply.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import IO, Any, Literal, Self, TextIO, assert_never

from rich.console import Console
from rich.status import Status
from rich.text import Text

from thinklsp.agent.prompts import Excerpt
from thinklsp.cli.terminal import (
    can_ask,
    choose,
    confirm,
    create_console,
    find_current_folder,
    format_usage_line,
    is_live,
    render_diff,
    render_plan,
    render_tool,
    sanitize_text,
)
from thinklsp.core.choices import EFFORT_SETTINGS
from thinklsp.core.edits import EditSet, count_hunks, format_diff
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.events import (
    CompactionStarted,
    ContextCompacted,
    DataReceived,
    Notice,
    ReminderAdded,
    RetryScheduled,
    StepCommitted,
    StepStarted,
    TextStreamed,
    ThinkingStreamed,
    ThinkingTick,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
)
from thinklsp.core.prompt_syntax import split_skills
from thinklsp.engine import ChatRequest, Choices, Engine, FrontEnd, Reference, Turn
from thinklsp.engine.results import ENDINGS, EditOutcome, FileStatus, HunkCounts, build_turn_result, count_unsent_hunks
from thinklsp.engine.session_commands import SessionCommands
from thinklsp.engine.session_folders import SessionFolders
from thinklsp.engine.session_stores import open_session_store
from thinklsp.engine.turn_request import is_image
from thinklsp.settings.sources import EditorSettings
from thinklsp.workspace.overlay import apply_to_disk
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import WorkspaceView

_LINE_RANGE = re.compile(r"(.+?):L?(\d+)(?:-L?(\d+))?")
# Maps stop reasons to advice for the user.
_ADVICE = {
    "max_steps": "Raise `maxSteps` or ask for less.",
    "context_window": "Ask for less in one prompt.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompt", nargs="?", help="the prompt; to read it from standard input, use `-` or a pipe without a prompt"
    )
    parser.add_argument(
        "--file",
        metavar="F[:L1-L2]",
        action="append",
        default=[],
        help="include this file, or these lines, in the prompt; can be repeated",
    )
    parser.add_argument(
        "--session",
        metavar="ID",
        help="continue a session from this folder: its id, the beginning of its id, or `last` for the newest",
    )
    parser.add_argument("--thinking", action="store_true", help="show the model's summary of its thinking")
    parser.add_argument("--json", action="store_true", help="print only the result, as a JSON object")
    parser.add_argument("--apply", action="store_true", help="write the proposed changes without asking")
    parser.add_argument("--model", metavar="ID", help="the model to ask")
    parser.add_argument("--effort", choices=EFFORT_SETTINGS, help="reasoning effort")
    parser.set_defaults(wrong=parser.error)


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns 0 if the turn succeeded and, with --apply, all changes were written."""
    prompt = _read_prompt(args.prompt)
    if not prompt.strip():
        args.wrong("the prompt is empty: give a prompt, or - to read standard input")
    places = tuple(_parse_reference(argument) for argument in args.file)
    with ExitStack() as stack:
        engine = Engine(os.environ, open_session_store(os.environ))
        folders = SessionFolders(find_current_folder(), engine.user)
        stack.callback(folders.close)
        if folders.is_empty and places:
            raise ThinkLspError(" ".join(folders.problems))
        view = folders.create_view()
        text, skills = split_skills(prompt)
        request = ChatRequest(
            title="ask",
            prompt=text,
            skills=skills,
            references=places,
            view=view,
            workspace=folders.key,
            effort=args.effort,
            model=args.model,
        )
        turn, finished = asyncio.run(_run(engine, request, args, folders.problems))
        edit_set = turn.overlay.build_edit_set()
        outcome = _review_edit(edit_set, view, finished, args) if edit_set else None
    result = build_turn_result(turn, finished, outcome)
    if args.json:
        print(json.dumps(result))
    else:
        create_console(sys.stderr).print(format_usage_line(result["usage"]), style="dim")
    return _exit_code(result, args)


def _exit_code(result: Mapping[str, Any], args: argparse.Namespace) -> int:
    reason = result["stopReason"]
    if (ending := ENDINGS.get(reason)) is not None:
        details = result["text"] if reason == "refusal" else _ADVICE.get(reason, "")
        sys.stderr.write(sanitize_text(f"thinklsp ask: {ending[0].upper()}{ending[1:]}. {details}".rstrip()) + "\n")
        return 1
    edits = result["edits"]
    return 1 if args.apply and edits is not None and edits["applied"] != "all" else 0


def _read_prompt(argument: str | None) -> str:
    """Return the prompt from the command line or from standard input, or an empty string."""
    if argument not in (None, "-"):
        return str(argument)
    if sys.stdin.isatty():
        if argument is None:
            return ""
        sys.stderr.write("Type your prompt and press Ctrl-D on an empty line to send it:\n")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _parse_reference(argument: str) -> Reference:
    """Parse `F`, `F:10` or `F:10-20`. The entire argument is the file's name if such a file exists."""
    match = None if os.path.exists(argument) else _LINE_RANGE.fullmatch(argument)
    name, lines = argument, None
    if match is not None:
        name, first, last = match[1], int(match[2]), int(match[3] or match[2])
        if not 1 <= first <= last:
            raise ThinkLspError(
                f"--file {argument}: invalid line range. Use FILE:START-END, with lines numbered from 1."
            )
        lines = (first, last)
    return Reference(path_to_uri(os.path.abspath(name)), lines)


async def _run(
    engine: Engine, request: ChatRequest, args: argparse.Namespace, problems: Sequence[str]
) -> tuple[Turn, TurnFinished]:
    choices: Choices = {"thinking.display": "summary"} if args.thinking else {}
    aside = create_console(sys.stderr)
    try:
        if engine.user.rejected:
            # Reject invalid settings, because a mistyped `off` must not start a turn with thinking, which costs money.
            raise ThinkLspError(" ".join(engine.user.rejected))
        if args.session is not None:
            summary = await SessionCommands(engine.store, request.workspace).find(args.session)
            request = replace(request, session_id=summary.id)
        # Print problems first, because they may explain why the turn cannot start.
        for text in (*engine.user.problems, *problems):
            aside.print(sanitize_text(text), style="yellow", soft_wrap=True)
        turn = await engine.start_turn(request, EditorSettings(), choices)
        thinking = turn.display == "summary"
        tools = not args.json or aside.is_terminal
        with turn, AskScreen(None if args.json else sys.stdout, aside, thinking=thinking, tools=tools) as screen:
            for text in _describe_cut_ranges(request.references, turn.excerpts):
                screen.note(text, warning=True)
            try:
                return turn, await _run_turn(turn, screen, json_wanted=args.json)
            finally:
                for text in engine.store.problems:
                    screen.note(text, warning=True)
    finally:
        await engine.aclose()


def _describe_cut_ranges(places: Sequence[Reference], excerpts: Sequence[Excerpt]) -> Iterator[str]:
    """Yield a sentence for each file that has fewer lines than the argument names."""
    for place, excerpt in zip((place for place in places if not is_image(place)), excerpts, strict=True):
        if place.lines is not None and place.lines[1] > excerpt.total_lines:
            lines = "1 line" if excerpt.total_lines == 1 else f"{excerpt.total_lines} lines"
            included = f"{excerpt.first_line}-{excerpt.last_line}"
            yield f"{excerpt.path} has only {lines}. The prompt includes lines {included}."


async def _run_turn(turn: Turn, screen: AskScreen, *, json_wanted: bool) -> TurnFinished:
    async def ask(question: str, options: tuple[str, ...]) -> str | None:
        # With --json, the caller is a program, which cannot answer questions.
        if json_wanted or not can_ask():
            screen.note(f"There is no terminal to ask you in: {question}")
            return None
        screen.pause()
        try:
            return await choose(question, options)
        finally:
            screen.enter_phase("working")

    return await turn.run(FrontEnd(screen.show, ask))


def _review_edit(
    edit_set: EditSet, view: WorkspaceView, finished: TurnFinished, args: argparse.Namespace
) -> EditOutcome:
    """Show the proposed changes and write them if the user agrees."""
    out, aside = create_console(sys.stdout), create_console(sys.stderr)
    if not args.json:
        out.print()
        for line in render_diff(format_diff(edit_set)):
            out.print(line, soft_wrap=True)
    if finished.stop_reason != "end_turn":
        outcome = _build_unwritten_outcome(edit_set, "held", "the turn did not finish, so its edit is incomplete")
    elif args.apply or (not args.json and can_ask() and confirm("\nWrite these changes?")):
        outcome = _apply(edit_set, view)
    else:
        outcome = _build_unwritten_outcome(edit_set, "refused", "nothing was written; use --apply to write the changes")
    for file in outcome.files:
        if file.status == "applied":
            aside.print(f"written: {sanitize_text(view.resolve(file.uri).label)}", style="green", soft_wrap=True)
    for reason in dict.fromkeys(file.reason for file in outcome.files if file.reason is not None):
        aside.print(sanitize_text(reason[0].upper() + reason[1:].rstrip(".") + "."), style="yellow", soft_wrap=True)
    return outcome


def _build_unwritten_outcome(edit_set: EditSet, status: Literal["held", "refused"], reason: str) -> EditOutcome:
    return EditOutcome(tuple(FileStatus(file.uri, status, reason, count_unsent_hunks(file)) for file in edit_set.files))


def _apply(edit_set: EditSet, view: WorkspaceView) -> EditOutcome:
    counts = {file.uri: count_hunks(file) for file in edit_set.files}
    files = []
    for outcome in apply_to_disk(edit_set, view):
        count, is_written = counts[outcome.uri], outcome.reason is None
        hunks = HunkCounts(count, 0) if is_written else HunkCounts(0, count)
        files.append(FileStatus(outcome.uri, "applied" if is_written else "refused", outcome.reason, hunks))
    return EditOutcome(tuple(files))


class AskScreen:
    """A context manager for the output of a turn. Only the answer goes to `answer`, which is None for no answer.

    The status line is hidden while text is written, because standard output may be the same terminal. A terminal
    receives the text as it streams. A file or a pipe receives the text of a step only when the step is complete,
    because text in a file cannot be removed if the step is retried.
    """

    def __init__(self, answer: TextIO | None, console: Console, *, thinking: bool, tools: bool) -> None:
        self._answer = answer
        self._buffer: list[str] | None = [] if answer is not None and not answer.isatty() else None
        self._console = console
        self._show_thinking = thinking
        self._show_tools = tools
        self._status: Status | None = None
        self._phase = "starting"
        self._started_at = time.monotonic()
        self._tokens_done = self._tokens_now = 0
        self._open_line: IO[str] | None = None
        self._has_output = self._new_paragraph = self._continues = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush_buffer()
        self.pause()

    def __rich__(self) -> Text:
        """Return the status line, which a terminal shows several times a second."""
        parts = [self._phase, f"{time.monotonic() - self._started_at:.0f} s"]
        if tokens := self._tokens_done + self._tokens_now:
            parts.append(f"{tokens:,} tokens")
        text = Text(sanitize_text(" · ".join(parts)), style="cyan")
        text.truncate(max(10, self._console.width - 4), overflow="ellipsis")
        return text

    def show(self, event: TurnEvent) -> None:
        match event:
            case StepStarted() | ReminderAdded():
                self._start_step()
            case ThinkingTick():
                self._tokens_now = max(self._tokens_now, event.tokens or 0)
            case ThinkingStreamed():
                self._stream_thinking(event.delta)
            case TextStreamed():
                self._add_text(event.delta)
            case ToolStarted():
                self.enter_phase(event.title)
            case ToolFinished():
                self._show_tool(event)
            case StepCommitted():
                self._finish_step(event)
            case RetryScheduled():
                self._show_retry(event)
            case DataReceived():
                pass
            case CompactionStarted():
                self.enter_phase("compacting")
            case ContextCompacted():
                self._tokens_done += event.usage.output_tokens or 0
                self.note(event.text)
            case Notice():
                self.note(event.text, warning=event.level == "warning")
            case TurnFinished():
                self._flush_buffer()
                self.pause()
            case _:
                assert_never(event)

    def _start_step(self) -> None:
        # If the provider paused the answer, the next step continues the same text.
        if not self._continues:
            self.enter_phase("thinking")

    def _finish_step(self, step: StepCommitted) -> None:
        self._tokens_done += step.usage.output_tokens or 0
        self._tokens_now = 0
        self._flush_buffer()
        self._continues = step.assistant.is_paused
        if not self._continues:
            self.pause()
            self._new_paragraph = self._has_output

    def _show_retry(self, event: RetryScheduled) -> None:
        if event.restart and self._buffer is not None:
            self._buffer.clear()
        elif event.restart:
            self.note("Ignore the text above: the answer is starting over.", warning=True)
        self.enter_phase(f"{event.format_phase(event.delay)} · {event.cause}")

    def note(self, text: str, *, warning: bool = False) -> None:
        self.pause()
        self._console.print(Text(sanitize_text(text), style="yellow" if warning else "dim"), soft_wrap=True)

    def pause(self) -> None:
        """Hide the status line and end the current line, so that other output can follow."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._open_line is not None:
            self._open_line.write("\n")
            self._open_line.flush()
            self._open_line = None

    def enter_phase(self, phase: str) -> None:
        self.pause()
        self._phase = phase
        if is_live(self._console):
            self._status = self._console.status(self)
            self._status.start()

    def _add_text(self, delta: str) -> None:
        if self._buffer is None:
            self._stream_text(delta)
            return
        self._buffer.append(delta)
        if self._phase != "writing":
            self.enter_phase("writing")

    def _flush_buffer(self) -> None:
        if self._buffer:
            self._stream_text("".join(self._buffer))
            self._buffer.clear()

    def _stream_text(self, delta: str) -> None:
        if self._answer is None or not delta:
            return
        if self._open_line is not self._answer:
            self.pause()
            if self._new_paragraph:
                self._answer.write("\n")
            self._has_output, self._new_paragraph = True, False
            self._open_line = self._answer
        self._answer.write(sanitize_text(delta))
        self._answer.flush()

    def _stream_thinking(self, delta: str) -> None:
        if not self._show_thinking:
            return
        if self._open_line is not self._console.file:
            self.pause()
            self._open_line = self._console.file
        self._console.print(Text(sanitize_text(delta), style="dim italic"), end="", soft_wrap=True)
        self._console.file.flush()

    def _show_tool(self, event: ToolFinished) -> None:
        if self._show_tools:
            self.pause()
            self._console.print(render_tool(event.title, is_error=event.is_error), soft_wrap=True)
            for line in render_plan((entry.text, entry.status) for entry in event.plan or ()):
                self._console.print(Text("  ").append_text(line))
        self.enter_phase("working")
