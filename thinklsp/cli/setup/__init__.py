"""Set up an editor: show the changes, and make them after a yes. Without an editor, list the editors found here."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from thinklsp.cli.setup.editors import EDITORS, Place, Programs, SetupEditor
from thinklsp.cli.setup.files import (
    FileChange,
    Machine,
    apply_changes,
    check_writable,
    find_editor_files,
    find_server,
    plan_change,
)
from thinklsp.cli.terminal import create_console, is_confirmed, render_diff, sanitize_text
from thinklsp.core.errors import ThinkLspError

_TIMEOUT_SECONDS = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("editor", nargs="?", choices=EDITORS, metavar="EDITOR", help=", ".join(EDITORS))
    parser.add_argument("--print", action="store_true", dest="only_print", help="only show what would change")
    parser.add_argument("--yes", action="store_true", help="change it without asking")
    parser.add_argument("--remove", action="store_true", help="take back what `setup` has changed")
    parser.set_defaults(wrong=parser.error)


def run(args: argparse.Namespace) -> int:
    if args.editor is None and (args.remove or args.yes or args.only_print):
        args.wrong(f"name an editor: {', '.join(EDITORS)}")
    machine = Machine(dict(os.environ), sys.platform, find_server(os.environ), find_editor_files())
    if args.editor is None:
        return _list(machine)
    editor = EDITORS[args.editor]
    plan = plan_removal(editor, machine) if args.remove else plan_setup(editor, machine)
    console = create_console(sys.stdout)
    for line in render_diff("".join(_describe(plan))):
        console.print(line)
    for note in plan.notes:
        print(sanitize_text(note))
    if plan.is_empty:
        print(f"{editor.title}: nothing to {'remove' if args.remove else 'change'}.")
    elif not args.only_print:
        check_writable(plan.changes)
        question = f"{'Remove thinklsp from' if args.remove else 'Set up'} {editor.title}?"
        refusal = "Nothing was changed. Use --yes to change it without confirmation."
        if not is_confirmed(question, yes=args.yes, refusal=refusal):
            print("Nothing was changed.")
            return 0
        # A program can fail for reasons of its own, so the files come last.
        for argv in plan.programs:
            run_program(argv)
        apply_changes(plan.changes)
        print(f"{editor.title}: {'removed' if args.remove else 'set up'}. Start it again.")
    return 0


def run_program(argv: Sequence[str]) -> None:
    """Run an editor's own program. Raises ThinkLspError with the last line that it printed."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=_TIMEOUT_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ThinkLspError(f"Cannot run {argv[0]}: {error}.") from None
    if done.returncode != 0:
        words = done.stdout.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise ThinkLspError(f"`{' '.join(argv[:2])}` failed with code {done.returncode}: {words[-1]}")


@dataclass(frozen=True)
class Plan:
    """File changes, then programs to run. `notes` are sentences for the user."""

    changes: tuple[FileChange, ...]
    programs: Programs
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.programs


def plan_setup(editor: SetupEditor, machine: Machine) -> Plan:
    """Plan the set-up. Raises ThinkLspError if the editor is not installed, or if a file must not be changed."""
    program = editor.find(machine)
    if program is None:
        names = " or ".join(f"`{name}`" for name in editor.programs if not name.startswith("/"))
        raise ThinkLspError(f"{editor.title} was not found: {names} is not on PATH. Install it, then try again.")
    steps = editor.build_steps(machine, program)
    return _plan(steps.contents, steps.programs, steps.notes)


def plan_removal(editor: SetupEditor, machine: Machine) -> Plan:
    """Plan the removal. Raises ThinkLspError if a file must not be changed."""
    programs = editor.build_uninstall(machine, editor.find(machine) or editor.programs[0])
    return _plan([(place, None) for place in editor.find_places(machine)], programs)


def _plan(contents: Iterable[tuple[Place, Any]], programs: Programs, notes: tuple[str, ...] = ()) -> Plan:
    """Return the plan. `contents` are the lines or entries that each place gets, or None to remove ours."""
    changes: tuple[FileChange, ...] = ()
    for place, content in contents:
        edit = place.remove if content is None else partial(_insert, place, content)
        changes += plan_change(place.path, edit)
    links = (f"{each.path} is a link, so {each.target} changes." for each in changes if each.path != each.target)
    return Plan(changes, programs, (*links, *notes))


def _insert(place: Place, content: Any, data: bytes | None) -> bytes | None:
    return place.insert(data, content)


def _describe(plan: Plan) -> Iterator[str]:
    """Yield the changes as a diff, and the programs as commands."""
    for change in plan.changes:
        old, new = (os.devnull if data is None else str(change.path) for data in (change.before, change.after))
        before, after = ((data or b"").decode("utf-8", "replace") for data in (change.before, change.after))
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), old, new, lineterm=""):
            yield f"{line}\n"
    for argv in plan.programs:
        yield f"$ {shlex.join(argv)}\n"


def find_state(editor: SetupEditor, machine: Machine) -> str:
    """Return an editor's state in words. Raises ThinkLspError if the state cannot be found."""
    removal, setup = plan_removal(editor, machine), plan_setup(editor, machine)
    check_writable(setup.changes)
    if not removal.is_empty:
        return "set up" if setup.is_empty else "set up, but no longer up to date"
    return "has an entry of your own" if setup.is_empty else "not set up"


def _list(machine: Machine) -> int:
    console, states = create_console(sys.stdout), []
    for name, editor in EDITORS.items():
        if editor.find(machine) is not None:
            try:
                states.append(find_state(editor, machine))
            except ThinkLspError as error:
                # The command for that editor shows the whole message.
                states.append(str(error).partition(". ")[0])
            console.print(f"{name:<16}{editor.title:<20}{sanitize_text(states[-1])}")
    if not states:
        print("No editor was found here. `thinklsp setup --help` lists the editors.")
    elif any(state != "set up" for state in states):
        print("\nTo set up one of them, run `thinklsp setup EDITOR`.")
    return 0
