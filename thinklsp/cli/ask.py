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
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal

from rich.console import Console

from thinklsp.cli.ask_screen import AskScreen
from thinklsp.cli.terminal import (
    can_ask,
    choose,
    confirm,
    create_console,
    find_current_folder,
    format_usage_line,
    render_diff,
    sanitize_text,
)
from thinklsp.core.choices import BUDGET_ANSWERS, EFFORT_SETTINGS, BudgetAnswer
from thinklsp.core.edits import EditSet, count_hunks, format_diff
from thinklsp.core.errors import PathRefused, ThinkLspError
from thinklsp.core.events import TurnFinished
from thinklsp.core.prompt_syntax import split_skills
from thinklsp.engine import ChatRequest, Choices, Engine, FrontEnd, Reference, Turn
from thinklsp.engine.results import ENDINGS, EditOutcome, FileStatus, HunkCounts, build_turn_result, count_unsent_hunks
from thinklsp.engine.session_commands import SessionCommands, SessionScope
from thinklsp.engine.session_stores import open_session_store
from thinklsp.settings.sources import EditorSettings
from thinklsp.workspace.documents import open_extra_roots
from thinklsp.workspace.overlay import FileOutcome, apply_to_disk
from thinklsp.workspace.paths import Root, compute_workspace_key
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import WorkspaceFolder, WorkspaceView

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
        view, note = _open_workspace(engine, stack)
        if note is not None and places:
            raise ThinkLspError(note)
        workspace = compute_workspace_key(path_to_uri(find_current_folder()))
        text, skills = split_skills(prompt)
        request = ChatRequest(
            title="ask",
            prompt=text,
            skills=skills,
            references=places,
            view=view,
            workspace=workspace,
            effort=args.effort,
            model=args.model,
        )
        turn, finished = asyncio.run(_run(engine, request, args, note))
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


def _open_workspace(engine: Engine, stack: ExitStack) -> tuple[WorkspaceView, str | None]:
    """Open the current folder as the workspace.

    If tools must not read the folder, return an empty workspace and a message for the user.
    """
    workspace = engine.user.file.workspace
    protected = ProtectedPaths(workspace.allow_protected)
    folder = find_current_folder()
    try:
        root = stack.enter_context(Root(folder, protected=protected, allow_wide=workspace.allow_home))
    except PathRefused as refused:
        return WorkspaceView(protected=protected), f"The model cannot use files in this turn. {refused}"
    extra, problems = open_extra_roots(workspace.extra_roots, [root], protected, allow_wide=workspace.allow_home)
    folders = [(WorkspaceFolder(path_to_uri(folder), ""), root)]
    for problem in problems:
        sys.stderr.write(f"{sanitize_text(problem)}\n")
    return WorkspaceView(folders, protected=protected, extra=extra), None


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
    engine: Engine, request: ChatRequest, args: argparse.Namespace, note: str | None
) -> tuple[Turn, TurnFinished]:
    choices: Choices = {"thinking.display": "summary"} if args.thinking else {}
    aside = create_console(sys.stderr)
    try:
        if engine.user.rejected:
            # Reject invalid settings, because a mistyped `off` must not start a turn with thinking, which costs money.
            raise ThinkLspError(" ".join(engine.user.rejected))
        if args.session is not None:
            summary = await SessionCommands(engine.store, SessionScope(request.workspace)).find(args.session)
            request = replace(request, session_id=summary.id)
        with await _start(engine, request, choices, aside) as turn, _create_screen(turn, args, aside) as screen:
            shown_problems = (*engine.user.problems, *filter(None, [note]), *engine.store.problems)
            for text in shown_problems:
                screen.note(text, warning=True)
            try:
                return turn, await _run_turn(turn, screen, json_wanted=args.json)
            finally:
                for text in engine.store.problems:
                    if text not in shown_problems:
                        screen.note(text, warning=True)
    finally:
        await engine.aclose()


def _create_screen(turn: Turn, args: argparse.Namespace, aside: Console) -> AskScreen:
    answer = None if args.json else sys.stdout
    return AskScreen(answer, aside, thinking=turn.setup.display == "summary", tools=not args.json or aside.is_terminal)


async def _start(engine: Engine, request: ChatRequest, choices: Choices, aside: Console) -> Turn:
    try:
        return await engine.start_turn(request, EditorSettings(), choices)
    except ThinkLspError:
        # Problems in the settings may explain why the turn cannot start.
        for text in engine.user.problems:
            aside.print(sanitize_text(text), style="yellow", soft_wrap=True)
        raise


async def _run_turn(turn: Turn, screen: AskScreen, *, json_wanted: bool) -> TurnFinished:
    async def ask(question: str, options: tuple[str, ...]) -> str | None:
        # With --json, the caller is a program, which cannot answer questions.
        if json_wanted or not can_ask():
            return None
        with _pause_screen(screen):
            return await choose(question, options)

    async def ask_budget(text: str) -> BudgetAnswer:
        answer = await ask(text, tuple(BUDGET_ANSWERS))
        return BUDGET_ANSWERS.get(answer or "", "stop")

    return await turn.run(FrontEnd(screen.show, ask, ask_budget))


@contextmanager
def _pause_screen(screen: AskScreen) -> Iterator[None]:
    screen.pause()
    try:
        yield
    finally:
        screen.enter_phase("working")


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
    outcomes = apply_to_disk(edit_set, view)
    hunks = {file.uri: count_hunks(file) for file in edit_set.files}
    return EditOutcome(tuple(_build_file_status(outcome, hunks[outcome.uri]) for outcome in outcomes))


def _build_file_status(outcome: FileOutcome, hunks: int) -> FileStatus:
    if outcome.reason is None:
        return FileStatus(outcome.uri, "applied", hunks=HunkCounts(hunks, 0))
    return FileStatus(outcome.uri, "refused", outcome.reason, HunkCounts(0, hunks))
