"""Grammars and queries, loaded when a language is first asked for, and the parsing itself.

A text is parsed as bytes in which every line ends as editors count lines: lone carriage returns become line feeds and
NULs, which grammars take for the end, become blanks. Neither moves anything: offsets are those of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from thinklsp.symbols.languages import Language

if TYPE_CHECKING:
    import tree_sitter

Stop = Callable[[], bool]
"""Asked time and again while a text is parsed; true ends it."""

_CHUNK = 1 << 16
_LONE_RETURN = re.compile(rb"\r(?!\n)")
# Python's grammar takes a line end behind a dot for the end of the statement, even between brackets.
_DOT_AT_END = re.compile(rb"^([^#\n]*[^\W\d]\w*[ \t]*\.[ \t]*\r?)\n", re.MULTILINE)


class ParsingStopped(Exception):
    """The time was up, or nobody waits for the answer any more."""


def never() -> bool:
    return False


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


def parse(data: bytes, language: Language, stop: Stop) -> tree_sitter.Tree:
    """Raises ParsingStopped. Rows of the tree mean nothing; its offsets are those of `data`."""
    tree = _parse(data, language, stop)
    if language.name == "python" and tree.root_node.has_error and _DOT_AT_END.search(data):
        return _parse(_DOT_AT_END.sub(rb"\1 ", data), language, stop)
    return tree


def _parse(data: bytes, language: Language, stop: Stop) -> tree_sitter.Tree:
    """Lets other threads run: the parser comes back here every few steps."""
    from tree_sitter import Parser  # noqa: PLC0415 - native code, loaded when a symbol is first asked for.

    def chunk(offset: int, point: object) -> bytes:  # noqa: ARG001 - the parser gives both.
        return data[offset : offset + _CHUNK]

    def progress(offset: int, failed: bool) -> bool:  # noqa: ARG001 - the same.
        return stop()

    try:
        return Parser(_grammar(language.name)).parse(chunk, progress_callback=progress)
    except ValueError:
        # The only way that it fails for: the callback has ended it.
        raise ParsingStopped from None


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
