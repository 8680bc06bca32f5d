"""Symbols and their places as lines for the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thinklsp.symbols.outline import Symbol
from thinklsp.tools.shown import RESULT_LIMIT, shown_name, visible
from thinklsp.workspace.relpath import quoted
from thinklsp.workspace.view import Place

LINES_OF_DEFINITION = 4
_NOTE_ROOM = 300
_LONGEST_LINE = 300


def entry_text(symbol: Symbol) -> str:
    return f"{'  ' * min(symbol.depth, 20)}{_named(symbol)} {_range(symbol)}"


def _named(symbol: Symbol) -> str:
    prefix = f"{symbol.container}." if symbol.container and symbol.kind != "namespace" and not symbol.depth else ""
    return visible(f"{symbol.kind} {prefix}{symbol.name}")


def _range(symbol: Symbol) -> str:
    return (
        str(symbol.first_line) if symbol.first_line == symbol.last_line else f"{symbol.first_line}-{symbol.last_line}"
    )


def definition_text(place: Place, symbol: Symbol, lines: Sequence[str]) -> str:
    within = f" in {visible(symbol.container)}" if symbol.container else ""
    head = f"{shown_name(place.shown)}:{_range(symbol)} ({symbol.kind}{within})"
    most = min(LINES_OF_DEFINITION, symbol.last_line - symbol.first_line + 1)
    return "\n".join((head, *excerpt_lines(lines, symbol.first_line, most)))


def excerpt_lines(lines: Sequence[str], first: int, count: int) -> list[str]:
    return [f"{number}\t{_cut(lines[number - 1])}" for number in range(first, min(first + count, len(lines) + 1))]


def line_text(shown: str, number: int, lines: Sequence[str]) -> str:
    text = _cut(lines[number - 1]).strip() if number <= len(lines) else ""
    return f"{shown_name(shown)}:{number}: {text}"


def _cut(line: str) -> str:
    text = visible(line.rstrip("\r\n")[: _LONGEST_LINE + 1])
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]} [line cut]"


def head_line(count: int, what: str, name: str, source: str) -> str:
    return f"{count or 'No'} {what}{'' if count == 1 else 's'} of {quoted(name)} ({source})"


def bounded_text(head: str, blocks: Iterable[str], count: int) -> str:
    """`count`: of all blocks there are, of which `blocks` may hold only the first."""
    room = RESULT_LIMIT - _NOTE_ROOM - len(head)
    shown: list[str] = []
    for block in blocks:
        room -= len(block) + 1
        if room < 0:
            return "\n".join((head, *shown, f"[cut: {len(shown)} of {count} entries]"))
        shown.append(block)
    return "\n".join((head, *shown))
