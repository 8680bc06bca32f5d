"""What the editor's language servers answer about symbols, as blocks of text for the model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

from thinklsp.core.errors import PathRefused
from thinklsp.core.lines import line_bodies, split_lines
from thinklsp.symbols.outline import Symbol
from thinklsp.tools.editor import Editor, NamedTarget, NamedTargets, Point, Target
from thinklsp.tools.shown import shown_name, visible
from thinklsp.tools.symbol_text import bounded_text, entry_text, excerpt_lines, line_text
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.uri import uri_to_path
from thinklsp.workspace.view import Place

BY_EDITOR = "from the editor's language server"
# What begins behind a name: `run(int)`, `List<T>`.
_PARAMETERS = re.compile(r"[(<\[\s]")


async def ask_editor(
    ask: Callable[[Point], Awaitable[tuple[Target, ...] | None]], points: Sequence[Point]
) -> tuple[Target, ...]:
    """Return every target once, in the order of the points; none if the editor does not answer."""
    answers = await asyncio.gather(*map(ask, points))
    return tuple(dict.fromkeys(target for answer in answers for target in answer or ()))


async def hover_block(editor: Editor, points: Sequence[Point]) -> list[str]:
    """Return one block with what the editor shows about the first of the places; none if it shows nothing."""
    text = await editor.hover(points[0]) if points else None
    if text is None:
        return []
    return ["\n".join(("The editor shows for it:", *(f"| {line}" for line in line_bodies(text))))]


def outline_text(place: Place, told: NamedTargets) -> str:
    """Return the outline of a file by the symbols that the editor names."""
    cut = ["[there are more]"] if told.is_cut else []
    unread = [f"[left out: {told.unread} in a form that cannot be read]"] if told.unread else []
    head = f"{shown_name(place.shown)}, {BY_EDITOR}"
    return bounded_text(
        head, [*unread, *(entry_text(_symbol_of(one)) for one in told.symbols), *cut], len(told.symbols)
    )


def _symbol_of(told: NamedTarget) -> Symbol:
    first, last = told.target.first_line, told.target.last_line
    return Symbol(told.name, told.kind, first, first, last, told.depth, told.container)


def is_named(full: str, name: str) -> bool:
    """Tell whether a symbol has this name: language servers also write its parameters, or its type before a dot."""
    return name == _PARAMETERS.split(full, maxsplit=1)[0].rpartition(".")[2].rpartition("::")[2]


def target_blocks(targets: Sequence[Target], overlay: EditOverlay, most_lines: int) -> list[str]:
    """Return a block for each target, with at most so many lines of its text."""
    blocks = []
    for target in targets:
        place, lines = _text_of(target.uri, overlay)
        changed = place is not None and any(place.key == other.key for other in overlay.changed())
        shown = place.shown if place is not None else _written(target.uri)
        note = "" if lines else " [not in the workspace; not read]"
        if changed:
            note = " [numbers of before this turn's edits]"
        if most_lines == 1 and lines:
            blocks.append(line_text(shown, target.first_line, lines) + note)
        else:
            head = f"{shown_name(shown)}:{target.first_line}{note}"
            blocks.append("\n".join((head, *excerpt_lines(lines, target.first_line, most_lines))))
    return blocks


def _text_of(uri: str, overlay: EditOverlay) -> tuple[Place | None, list[str]]:
    """The text that the editor knows, without this turn's edits; nothing where the gate gives nothing."""
    try:
        place = overlay.view.resolve(uri)
        found = overlay.view.peek(place)
    except (PathRefused, UnicodeError):
        return None, []
    return place, [] if found is None else split_lines(found.text)


def _written(uri: str) -> str:
    try:
        return visible(uri_to_path(uri))
    except (PathRefused, UnicodeError):
        return visible(uri)
