"""The definitions of a text, in order, with their lines and what they stand in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from thinklsp.symbols.grammars import ParsingStopped, Rows, Stop, definitions_query, never, parse, source_bytes
from thinklsp.symbols.languages import Language

if TYPE_CHECKING:
    from tree_sitter import Node

# A function directly in one of these is a method.
_WITH_METHODS = frozenset({"class", "interface", "struct", "enum", "trait", "impl", "record"})
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Symbol:
    """`line`: where its name stands; all lines count from 1 and both ends are included. Decorators and comments before
    a definition do not belong to it. `depth`: how many definitions it stands in. `container`: the innermost of them, or
    what the definition itself names, such as a receiver's type; empty at the top."""

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


def outline(text: str, language: Language, stop: Stop = never) -> tuple[Symbol, ...]:
    """In the order of their beginnings. Broken text gives what can be made out. Raises ParsingStopped, nothing else."""
    data = source_bytes(text)
    root = parse(data, language, stop).root_node
    if stop():
        raise ParsingStopped
    found = sorted(_definitions(root, data, language), key=lambda each: (each.start, -each.end))
    return tuple(_nested(found))


def _definitions(root: Node, data: bytes, language: Language) -> Iterator[_Found]:
    from tree_sitter import QueryCursor  # noqa: PLC0415 - native code, loaded when a symbol is first asked for.

    rows = Rows(data)
    named: dict[int, tuple[int, _Found]] = {}
    for pattern, captures in QueryCursor(definitions_query(language)).matches(root):
        names, scopes = captures.pop("name"), captures.pop("scope", [])
        name = names[0]
        # Patterns stand in the order of their rank: what an earlier one has named is not taken again.
        if name.start_byte in named and named[name.start_byte][0] <= pattern:
            continue
        for kind, nodes in captures.items():
            text = _text(name, data)
            if text:
                symbol = Symbol(
                    text, kind, rows.at(name.start_byte), rows.at(nodes[0].start_byte), rows.at(_end(nodes[0]) - 1),
                    container=_text(scopes[0], data) if scopes else "",
                )  # fmt: skip
                named[name.start_byte] = (pattern, _Found(symbol, nodes[0].start_byte, nodes[0].end_byte))
    for _, found in named.values():
        yield found


def _text(node: Node, data: bytes) -> str:
    text = data[node.start_byte : node.end_byte].decode("utf-8", "replace")
    return " ".join(text[:_LONGEST_NAME].split())


def _end(node: Node) -> int:
    """Where the last thing in a definition ends that is no comment: some grammars count what follows as part of it."""
    end = node
    while end.child_count:
        last = next((child for child in reversed(end.children) if not _is_blank(child)), None)
        if last is None:
            break
        end = last
    return end.end_byte


def _is_blank(node: Node) -> bool:
    return node.is_extra or "comment" in node.type or node.start_byte == node.end_byte


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
