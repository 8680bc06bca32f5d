"""What worker processes answer about one text: JSON values, few enough to be decoded in a moment."""

from __future__ import annotations

from typing import Any

from thinklsp.symbols.languages import languages
from thinklsp.symbols.mentions import mentions
from thinklsp.symbols.outline import Symbol, outline

MAX_SYMBOLS = 7_000
"""More than one tool result can name."""
MAX_LINES = 50_000

Row = list[Any]


def outline_rows(text: str, language: str) -> tuple[int, list[Row]]:
    """Return the number of definitions, and the first of them."""
    symbols = outline(text, languages()[language])
    return len(symbols), [_row(symbol) for symbol in symbols[:MAX_SYMBOLS]]


def definition_rows(text: str, language: str, name: str, line: int) -> list[Row]:
    """Return the definitions of a name, those in the scopes around `line` first; 0 stands for no line."""
    symbols = outline(text, languages()[language])
    scopes = {each.name: each.depth for each in symbols if each.first_line <= line <= each.last_line}
    named = [each for each in symbols if each.name.rpartition("::")[2] == name]
    named.sort(key=lambda each: -scopes.get(each.container, -1))
    return [_row(symbol) for symbol in named[:MAX_SYMBOLS]]


def mention_lines(text: str, language: str, name: str) -> list[int]:
    return list(mentions(text, languages()[language], name))[:MAX_LINES]


def symbol_of(row: Row) -> Symbol:
    return Symbol(*row)


def _row(symbol: Symbol) -> Row:
    return [
        symbol.name, symbol.kind, symbol.line, symbol.first_line, symbol.last_line, symbol.depth, symbol.container
    ]  # fmt: skip
