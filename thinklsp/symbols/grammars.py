"""Grammars and queries, loaded when a language is first asked for, and the parsing itself.

Parser and queries are native code that keeps the interpreter lock: a query over 300 kB of brackets takes minutes. The
server runs them in worker processes (`symbols/answers`).

A text is parsed as bytes in which every line ends as editors count lines: lone carriage returns become line feeds and
NULs, which grammars take for the end, become blanks. Neither moves anything: offsets are those of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from thinklsp.symbols.languages import Language

if TYPE_CHECKING:
    import tree_sitter

_LONE_RETURN = re.compile(rb"\r(?!\n)")
# Python's grammar takes a line end behind a dot for the end of the statement, even between brackets.
_DOT_AT_END = re.compile(rb"^([^#\n]*[^\W\d]\w*[ \t]*\.[ \t]*\r?)\n", re.MULTILINE)


class Rows:
    """Which line an offset is on, from 1."""

    def __init__(self, data: bytes) -> None:
        self._starts = [match.end() for match in re.finditer(b"\n", data)]

    def at(self, offset: int) -> int:
        return bisect_right(self._starts, offset) + 1


def source_bytes(text: str) -> bytes:
    """Lone surrogates become question marks; a byte order mark goes."""
    data = text.removeprefix("\ufeff").encode("utf-8", "replace").replace(b"\0", b" ")
    return _LONE_RETURN.sub(b"\n", data)


def parse(data: bytes, language: Language) -> tree_sitter.Tree:
    """Rows of the tree mean nothing; its offsets are those of `data`."""
    from tree_sitter import Parser  # noqa: PLC0415 - native code, loaded when a symbol is first asked for.

    parser = Parser(_grammar(language.name))
    tree = parser.parse(data)
    if language.name == "python" and tree.root_node.has_error and _DOT_AT_END.search(data):
        return parser.parse(_DOT_AT_END.sub(rb"\1 ", data))
    return tree


@cache
def definitions_query(language: Language) -> tree_sitter.Query:
    from tree_sitter import Query  # noqa: PLC0415 - as above.

    folder = files(__package__).joinpath("queries")
    texts = (folder.joinpath(f"{name}.scm").read_text("utf-8") for name in language.queries)
    return Query(_grammar(language.name), "\n".join(texts))


@cache
def _grammar(name: str) -> tree_sitter.Language:
    from tree_sitter_language_pack import get_language  # noqa: PLC0415 - as above.

    return get_language(name)  # type: ignore[arg-type] # The names in languages.toml are all in the pack; a test loads each.
