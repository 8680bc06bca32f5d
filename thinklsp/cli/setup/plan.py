"""The plan of `thinklsp setup` for one editor: what would change, as values and as text."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from thinklsp.cli.setup.editors import SetupEditor
from thinklsp.cli.setup.files import FileChange, check_writable, plan_change
from thinklsp.cli.setup.machine import Machine
from thinklsp.cli.setup.steps import ConfigEdit
from thinklsp.core.errors import ThinkLspError


class State(StrEnum):
    """An editor's state in the list."""

    READY = "set up"
    OUTDATED = "set up, but no longer up to date"
    MISSING = "not set up"
    OWN = "has an entry of your own"


@dataclass(frozen=True)
class Plan:
    """File changes, then programs to run. `notes` are sentences for the user."""

    changes: tuple[FileChange, ...]
    programs: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.programs


def plan_setup(editor: SetupEditor, machine: Machine) -> Plan:
    """Raises ThinkLspError if the editor is not installed, or if a file must not be changed."""
    program = editor.find(machine)
    if program is None:
        names = " or ".join(f"`{name}`" for name in editor.programs if not name.startswith("/"))
        raise ThinkLspError(f"{editor.title} was not found: {names} is not on PATH. Install it, then try again.")
    steps = editor.build_steps(machine, program)
    changes = _plan_changes(steps.edits)
    return Plan(changes, steps.programs, (*_list_links(changes), *steps.notes))


def plan_removal(editor: SetupEditor, machine: Machine) -> Plan:
    """Raises ThinkLspError if a file must not be changed."""
    changes = _plan_changes(editor.build_removals(machine))
    programs = editor.build_uninstall(machine, editor.find(machine) or editor.programs[0])
    return Plan(changes, programs, tuple(_list_links(changes)))


def find_state(editor: SetupEditor, machine: Machine) -> State:
    """Raises ThinkLspError if the state cannot be found."""
    removal, setup = plan_removal(editor, machine), plan_setup(editor, machine)
    check_writable(setup.changes)
    if not removal.is_empty:
        return State.READY if setup.is_empty else State.OUTDATED
    return State.OWN if setup.is_empty else State.MISSING


def describe_plan(plan: Plan) -> str:
    """Return the changes as a diff, and the programs as commands."""
    diff = "".join(line for change in plan.changes for line in _diff(change))
    return diff + "".join(f"$ {shlex.join(argv)}\n" for argv in plan.programs)


def _plan_changes(edits: Sequence[ConfigEdit]) -> tuple[FileChange, ...]:
    planned = (plan_change(each.path, each.root, each.edit) for each in edits)
    return tuple(change for change in planned if change is not None)


def _list_links(changes: Sequence[FileChange]) -> Iterator[str]:
    for change in changes:
        if change.is_linked:
            yield f"{change.path} is a link, so {change.target} changes."


def _diff(change: FileChange) -> Iterator[str]:
    before, after = _split(change.before), _split(change.after)
    old, new = (str(change.path) if data is not None else os.devnull for data in (change.before, change.after))
    for line in difflib.unified_diff(before, after, old, new):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _split(data: bytes | None) -> list[str]:
    text = (data or b"").decode("utf-8", "replace").replace("\r\n", "\n")
    return [f"{line}\n" for line in text.split("\n")[:-1]] + [line for line in text.split("\n")[-1:] if line]
