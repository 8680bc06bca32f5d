"""What worker processes answer about one text: JSON values, few enough to be decoded in a moment."""

from __future__ import annotations

import re
from typing import Any

from thinklsp.symbols.grammars import Rows, parse, source_bytes
from thinklsp.symbols.languages import Language, languages
from thinklsp.symbols.outline import Symbol, outline

MAX_SYMBOLS = 7_000
"""More than one tool result can name."""
MAX_LINES = 50_000
# Parts of the names of syntax nodes that are not code.
_PROSE = ("comment", "string", "char_literal", "character", "heredoc", "regex", "text")

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
    """Return the numbers of the first lines that mention a name."""
    return list(find_mentions(text, languages()[language], name))[:MAX_LINES]


def find_mentions(text: str, language: Language, name: str) -> tuple[int, ...]:
    """Return the lines, from 1, that hold a name as a word of the program: not in a comment and not in a string."""
    data = source_bytes(text)
    root, rows = parse(data, language).root_node, Rows(data)
    lines: dict[int, None] = {}
    for match in _compile_word(name).finditer(data):
        row = rows.at(match.start())
        if row not in lines:
            node = root.descendant_for_byte_range(match.start(), match.end())
            if node is None or not any(kind in node.type for kind in _PROSE):
                lines[row] = None
    return tuple(lines)


def _compile_word(name: str) -> re.Pattern[bytes]:
    """Compile a pattern for `name` in UTF-8, with no other character of a name beside it."""
    sign = rb"[\w$\x80-\xff]"
    return re.compile(b"(?<!%b)%b(?!%b)" % (sign, re.escape(name.encode("utf-8", "replace")), sign))


def symbol_of(row: Row) -> Symbol:
    return Symbol(*row)


def _row(symbol: Symbol) -> Row:
    return [
        symbol.name, symbol.kind, symbol.line, symbol.first_line, symbol.last_line, symbol.depth, symbol.container
    ]  # fmt: skip
