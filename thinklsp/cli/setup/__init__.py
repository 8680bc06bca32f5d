"""Set up an editor: show what would change, and change it after a yes. Without an editor, list the ones found here."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console

from thinklsp.cli.setup.editors import EDITORS
from thinklsp.cli.setup.files import apply_changes, check_writable
from thinklsp.cli.setup.machine import Machine, inspect_machine
from thinklsp.cli.setup.plan import State, describe_plan, find_state, plan_removal, plan_setup
from thinklsp.cli.terminal import can_ask, confirm, create_console, render_diff, sanitize_text
from thinklsp.core.errors import ThinkLspError

_TIMEOUT_SECONDS = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("editor", nargs="?", choices=EDITORS, metavar="EDITOR", help=", ".join(EDITORS))
    parser.add_argument("--print", action="store_true", dest="only_print", help="only show what would change")
    parser.add_argument("--yes", action="store_true", help="change it without asking")
    parser.add_argument("--remove", action="store_true", help="take back what `setup` has changed")
    parser.set_defaults(wrong=parser.error)


def run(args: argparse.Namespace) -> int:
    console = create_console(sys.stdout)
    if args.editor is None:
        if args.remove or args.yes or args.only_print:
            args.wrong(f"name an editor: {', '.join(EDITORS)}")
        return _list(console, inspect_machine())
    editor, machine = EDITORS[args.editor], inspect_machine()
    plan = plan_removal(editor, machine) if args.remove else plan_setup(editor, machine)
    for line in render_diff(describe_plan(plan)):
        console.print(line)
    for note in plan.notes:
        print(sanitize_text(note))
    if plan.is_empty:
        print(f"{editor.title}: nothing to {'remove' if args.remove else 'change'}.")
    elif not args.only_print:
        check_writable(plan.changes)
        if not _is_confirmed(args, editor.title):
            print("Nothing was changed.")
            return 0
        # A program can fail for reasons of its own, so the files come last.
        for argv in plan.programs:
            _run_program(argv)
        apply_changes(plan.changes)
        print(f"{editor.title}: {'removed' if args.remove else 'set up'}. Start it again.")
    return 0


def _is_confirmed(args: argparse.Namespace, title: str) -> bool:
    if not args.yes and not can_ask():
        raise ThinkLspError("Nothing was changed. Use --yes to change it without confirmation.")
    return args.yes or confirm(f"{'Remove thinklsp from' if args.remove else 'Set up'} {title}?")


def _run_program(argv: Sequence[str]) -> None:
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


def _list(console: Console, machine: Machine) -> int:
    rows = list(_describe_editors(machine))
    for name, title, state in rows:
        console.print(f"{name:<16}{title:<20}{sanitize_text(state)}")
    if not rows:
        print("No editor was found here. `thinklsp setup --help` lists the editors.")
    elif any(state != State.READY for _, _, state in rows):
        print("\nTo set up one of them, run `thinklsp setup EDITOR`.")
    return 0


def _describe_editors(machine: Machine) -> Iterator[tuple[str, str, str]]:
    for name, editor in EDITORS.items():
        if editor.find(machine) is not None:
            try:
                yield name, editor.title, find_state(editor, machine)
            except ThinkLspError as error:
                # What to do is said by the command for that editor.
                yield name, editor.title, str(error).partition(". ")[0]
