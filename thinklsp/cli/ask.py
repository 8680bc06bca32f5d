"""One chat turn in the terminal, through the same engine that editors use.

The answer goes to standard output, everything else to standard error. Changed files are shown as a diff and written
only after a yes, or with --apply.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import replace
from typing import Any, Literal

from rich.console import Console

from thinklsp.cli.ask_screen import AskScreen
from thinklsp.cli.terminal import console_for, current_folder, diff_lines, harmless, usage_line
from thinklsp.cli.terminal_question import can_ask, choose, confirm
from thinklsp.core.choices import BUDGET_ANSWERS, EFFORT_SETTINGS, BudgetAnswer
from thinklsp.core.edits import EditSet, count_hunks
from thinklsp.core.errors import PathRefused, ThinkLspError
from thinklsp.core.events import TurnFinished
from thinklsp.core.unified import diff
from thinklsp.engine import ChatTask, Choices, Engine, Reference, Turn, TurnSpec
from thinklsp.engine.results import ENDINGS, FileStatus, Hunks, Outcome, not_sent, turn_result
from thinklsp.engine.sessions import Reach, SessionCommands
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import state_folder
from thinklsp.settings import EditorSettings
from thinklsp.workspace.apply import FileOutcome, apply_to_disk
from thinklsp.workspace.extra_roots import open_extra_roots
from thinklsp.workspace.paths import Root, workspace_key
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import WorkspaceFolder, WorkspaceView

_LINES = re.compile(r"(.+?):L?(\d+)(?:-L?(\d+))?")
# What helps when a turn ended for this reason.
_ADVICE = {
    "max_steps": "Raise maxSteps or ask for less.",
    "context_window": "Ask about less at once.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", help="the question; `-` reads standard input, as does a pipe without it")
    parser.add_argument(
        "--file",
        metavar="F[:L1-L2]",
        action="append",
        default=[],
        help="put this file, or lines of it, before the model",
    )
    parser.add_argument(
        "--session",
        metavar="ID",
        help="go on with this session of the folder: its id, the beginning of it, or `last` for the newest",
    )
    parser.add_argument("--thinking", action="store_true", help="show the model's summary of its thinking")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object and nothing else")
    parser.add_argument("--apply", action="store_true", help="write the proposed changes without asking")
    parser.add_argument("--model", metavar="ID", help="the model to ask")
    parser.add_argument("--effort", choices=EFFORT_SETTINGS, help="reasoning effort")
    parser.set_defaults(wrong=parser.error)


def run(args: argparse.Namespace) -> int:
    """0 when the model gave its whole answer and every wish to write was met."""
    prompt = _prompt(args.prompt)
    if not prompt.strip():
        args.wrong("the prompt is empty: give a question, or - to read it from standard input")
    places = tuple(_reference(written) for written in args.file)
    with ExitStack() as stack:
        engine = Engine(os.environ, SqliteStore(state_folder(os.environ)))
        view, note = _view(engine, stack)
        if note is not None and places:
            raise ThinkLspError(note)
        workspace = workspace_key(path_to_uri(current_folder()))
        spec = TurnSpec("ask", ChatTask(prompt, places), view, workspace, effort=args.effort, model=args.model)
        turn, finished = asyncio.run(_turn(engine, spec, args, note))
        edit_set = turn.overlay.edit_set()
        outcome = _written(edit_set, view, finished, args) if edit_set else None
    result = turn_result(turn, finished, outcome)
    if args.json:
        print(json.dumps(result))
    else:
        console_for(sys.stderr).print(usage_line(result["usage"]), style="dim")
    return _exit_code(result, args)


def _exit_code(result: Mapping[str, Any], args: argparse.Namespace) -> int:
    reason = result["stopReason"]
    if (ending := ENDINGS.get(reason)) is not None:
        more = result["text"] if reason == "refusal" else _ADVICE.get(reason, "")
        sys.stderr.write(harmless(f"thinklsp ask: {ending[0].upper()}{ending[1:]}. {more}".rstrip()) + "\n")
        return 1
    edits = result["edits"]
    return 1 if args.apply and edits is not None and edits["applied"] != "all" else 0


def _prompt(given: str | None) -> str:
    """Return the question; empty if there is none."""
    if given not in (None, "-"):
        return str(given)
    if sys.stdin.isatty():
        if given is None:
            return ""
        sys.stderr.write("Your question, ended by Ctrl-D on a line of its own:\n")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _view(engine: Engine, stack: ExitStack) -> tuple[WorkspaceView, str | None]:
    """The current folder; without files, and a sentence why, where tools may not look at all of it."""
    workspace = engine.user.file.workspace
    protected = ProtectedPaths(workspace.allow_protected)
    folder = current_folder()
    try:
        root = stack.enter_context(Root(folder, protected=protected, allow_wide=workspace.allow_home))
    except PathRefused as refused:
        return WorkspaceView(protected=protected), f"No files are used. {refused}"
    extra, problems = open_extra_roots(workspace.extra_roots, [root], protected, allow_wide=workspace.allow_home)
    folders = [(WorkspaceFolder(path_to_uri(folder), ""), root)]
    for problem in problems:
        sys.stderr.write(f"{harmless(problem)}\n")
    return WorkspaceView(folders, protected=protected, extra=extra), None


def _reference(written: str) -> Reference:
    """`F`, `F:10` or `F:10-20`; a file whose own name ends like that is meant where it exists."""
    found = None if os.path.exists(written) else _LINES.fullmatch(written)
    name, lines = written, None
    if found is not None:
        name, first, last = found[1], int(found[2]), int(found[3] or found[2])
        if not 1 <= first <= last:
            raise ThinkLspError(f"--file {written} names no lines; they count from 1, the smaller number first.")
        lines = (first, last)
    return Reference(path_to_uri(os.path.abspath(name)), lines)


async def _turn(
    engine: Engine, spec: TurnSpec, args: argparse.Namespace, note: str | None
) -> tuple[Turn, TurnFinished]:
    choices: Choices = {"thinking.display": "summary"} if args.thinking else {}
    aside = console_for(sys.stderr)
    try:
        if engine.user.refused:
            # A mistyped `off` must not start a turn that thinks and costs.
            raise ThinkLspError(" ".join(engine.user.refused))
        if args.session is not None:
            found = await SessionCommands(engine.store, Reach(spec.workspace)).find(args.session)
            spec = replace(spec, session_id=found.id)
        with await _begun(engine, spec, choices, aside) as turn, _screen(turn, args, aside) as screen:
            told = (*engine.user.problems, *filter(None, [note]), *engine.store.problems)
            for text in told:
                screen.note(text, warning=True)
            try:
                return turn, await _finished(turn, screen, json_wanted=args.json)
            finally:
                for text in engine.store.problems:
                    if text not in told:
                        screen.note(text, warning=True)
    finally:
        await engine.aclose()


def _screen(turn: Turn, args: argparse.Namespace, aside: Console) -> AskScreen:
    answer = None if args.json else sys.stdout
    return AskScreen(answer, aside, thinking=turn.display == "summary", tools=not args.json or aside.is_terminal)


async def _begun(engine: Engine, spec: TurnSpec, choices: Choices, aside: Console) -> Turn:
    try:
        return await engine.begin(spec, EditorSettings(), choices)
    except ThinkLspError:
        # What is wrong with the settings may be why it cannot begin.
        for text in engine.user.problems:
            aside.print(harmless(text), style="yellow", soft_wrap=True)
        raise


async def _finished(turn: Turn, screen: AskScreen, *, json_wanted: bool) -> TurnFinished:
    async def ask(question: str, options: tuple[str, ...]) -> str | None:
        # Who reads JSON is a program.
        if json_wanted or not can_ask():
            return None
        with _paused(screen):
            return await choose(question, options)

    async def ask_budget(text: str) -> BudgetAnswer:
        answer = await ask(text, tuple(BUDGET_ANSWERS))
        return BUDGET_ANSWERS.get(answer or "", "stop")

    async with aclosing(turn.events(ask, ask_budget)) as events:
        async for event in events:
            screen.show(event)
            if isinstance(event, TurnFinished):
                return event
    raise AssertionError("a turn ends with TurnFinished or an error")


@contextmanager
def _paused(screen: AskScreen) -> Iterator[None]:
    screen.pause()
    try:
        yield
    finally:
        screen.resume("working")


def _written(edit_set: EditSet, view: WorkspaceView, finished: TurnFinished, args: argparse.Namespace) -> Outcome:
    """Shows the edit and writes it where the user wants it written."""
    out, aside = console_for(sys.stdout), console_for(sys.stderr)
    if not args.json:
        out.print()
        for line in diff_lines(diff(edit_set)):
            out.print(line, soft_wrap=True)
    if finished.stop_reason != "end_turn":
        outcome = _all(edit_set, "held", "the turn did not end well, so its edit is not complete")
    elif args.apply or (not args.json and can_ask() and confirm("\nWrite these changes?")):
        outcome = _apply(edit_set, view)
    else:
        outcome = _all(edit_set, "refused", "nothing was written; give --apply to write")
    for file in outcome.files:
        if file.status == "applied":
            aside.print(f"written: {harmless(view.resolve(file.uri).shown)}", style="green", soft_wrap=True)
    for reason in dict.fromkeys(file.reason for file in outcome.files if file.reason is not None):
        aside.print(harmless(reason[0].upper() + reason[1:].rstrip(".") + "."), style="yellow", soft_wrap=True)
    return outcome


def _all(edit_set: EditSet, status: Literal["held", "refused"], reason: str) -> Outcome:
    return Outcome(tuple(FileStatus(file.uri, status, reason, not_sent(file)) for file in edit_set.files))


def _apply(edit_set: EditSet, view: WorkspaceView) -> Outcome:
    made = apply_to_disk(edit_set, view)
    hunks = {file.uri: count_hunks(file) for file in edit_set.files}
    return Outcome(tuple(_status(one, hunks[one.uri]) for one in made))


def _status(made: FileOutcome, hunks: int) -> FileStatus:
    if made.reason is None:
        return FileStatus(made.uri, "applied", hunks=Hunks(hunks, 0))
    return FileStatus(made.uri, "refused", made.reason, Hunks(0, hunks))
