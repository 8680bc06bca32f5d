"""Where a name stands in a program: as a word of it, and not in a comment or string."""

from __future__ import annotations

import re

from thinklsp.symbols.grammars import Rows, parse, source_bytes
from thinklsp.symbols.languages import Language

_PROSE = ("comment", "string", "char_literal", "character", "heredoc", "regex", "text")


def mentions(text: str, language: Language, name: str) -> tuple[int, ...]:
    """Lines from 1, in order."""
    data = source_bytes(text)
    root, rows = parse(data, language).root_node, Rows(data)
    lines: dict[int, None] = {}
    for match in word(name).finditer(data):
        row = rows.at(match.start())
        if row not in lines:
            node = root.descendant_for_byte_range(match.start(), match.end())
            if node is None or not any(kind in node.type for kind in _PROSE):
                lines[row] = None
    return tuple(lines)


def word(name: str) -> re.Pattern[bytes]:
    """`name` in UTF-8 where no other sign of a name touches it."""
    sign = rb"[\w$\x80-\xff]"
    return re.compile(b"(?<!%b)%b(?!%b)" % (sign, re.escape(name.encode("utf-8", "replace")), sign))
