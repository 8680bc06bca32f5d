"""The definitions of a text, in order, with their lines and what they stand in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from thinklsp.symbols.grammars import Rows, definitions_query, parse, source_bytes
from thinklsp.symbols.languages import Language

if TYPE_CHECKING:
    from tree_sitter import Node

# A function directly in one of these is a method.
_WITH_METHODS = frozenset({"class", "interface", "struct", "enum", "trait", "impl", "record"})
_LONGEST_NAME = 200
# Levels of the syntax tree in which definitions are looked for: a query takes time by the square of the depth, and once
# it has begun it cannot be stopped.
_DEEPEST = 400


@dataclass(frozen=True, slots=True)
class Symbol:
    """`line`: where its name stands; all lines count from 1 and both ends are included. Comments before a definition do
    not belong to it, nor do Python's decorators; annotations do where the grammar puts them inside. `depth`: how many
    definitions it stands in. `container`: the innermost of them, or what the definition itself names, such as a
    receiver's type; empty at the top.
    """

    name: str
    kind: str
    line: int
    first_line: int
    last_line: int
    depth: int = 0
    container: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    symbol: Symbol
    start: int
    end: int


def outline(text: str, language: Language) -> tuple[Symbol, ...]:
    """In the order of their beginnings. Broken text gives what can be made out."""
    data = source_bytes(text)
    found = _definitions(parse(data, language).root_node, data, language)
    return tuple(_nested(sorted(found, key=lambda each: (each.start, -each.end))))


def _definitions(root: Node, data: bytes, language: Language) -> Iterable[_Found]:
    from tree_sitter import QueryCursor  # noqa: PLC0415 - native code, loaded when a symbol is first asked for.

    rows = Rows(data)
    ranks: dict[int, int] = {}
    named: dict[int, _Found] = {}
    cursor = QueryCursor(definitions_query(language))
    cursor.set_max_start_depth(_DEEPEST)
    for rank, captures in cursor.matches(root):
        name, scopes = captures.pop("name")[0], captures.pop("scope", ())
        # Patterns stand in the order of their rank: what an earlier one has named is not taken again.
        if ranks.get(name.start_byte, rank + 1) <= rank or not (text := _text(name, data)):
            continue
        ranks[name.start_byte] = rank
        ((kind, (node, *_)),) = captures.items()
        first, last = rows.at(node.start_byte), rows.at((_end(node) if language.indented else node.end_byte) - 1)
        if kind == "object" and first == last:
            # Data in passing: only objects that take room are worth a place in an outline.
            continue
        container = _text(scopes[0], data) if scopes else ""
        symbol = Symbol(text, kind, rows.at(name.start_byte), first, last, container=container)
        named[name.start_byte] = _Found(symbol, node.start_byte, node.end_byte)
    return named.values()


def _text(node: Node, data: bytes) -> str:
    text = data[node.start_byte : node.end_byte].decode("utf-8", "replace")
    return " ".join(text[:_LONGEST_NAME].split()).strip("\"'`")


def _end(node: Node) -> int:
    """Where the last thing in a definition ends that is no comment: the grammar counts what follows as part of it."""
    end = node
    while end.child_count:
        last = next((child for child in reversed(end.children) if not _is_blank(child)), None)
        if last is None:
            break
        end = last
    return end.end_byte


def _is_blank(node: Node) -> bool:
    return node.is_extra or node.type == "comment" or node.start_byte == node.end_byte


def _nested(found: list[_Found]) -> Iterator[Symbol]:
    within: list[_Found] = []
    for each in found:
        while within and within[-1].end <= each.start:
            within.pop()
        symbol = replace(each.symbol, depth=len(within))
        if within:
            outer = within[-1].symbol
            if (outer.name, outer.kind, outer.line) == (symbol.name, symbol.kind, symbol.line):
                # `const f = function f() {}` defines one thing.
                continue
            kind = "method" if symbol.kind == "function" and outer.kind in _WITH_METHODS else symbol.kind
            symbol = replace(
                symbol, kind=kind, container=symbol.container or outer.name,
                first_line=max(symbol.first_line, outer.first_line), last_line=min(symbol.last_line, outer.last_line),
            )  # fmt: skip
        within.append(_Found(symbol, each.start, each.end))
        yield symbol
