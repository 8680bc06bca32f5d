"""What completes in the prompt of a chat document: slash commands, their values, and what stands after an `@`.

A pure look at memory. The names of files are handed in; `file_names` has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thinklsp.lsp.chats.chat_outline import outside_fences, prompt_section
from thinklsp.lsp.chats.mentions import SPECIAL, written
from thinklsp.lsp.chats.slash import SLASH_COMMANDS
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.protocol.convert import Encoding, column_of, units
from thinklsp.lsp.protocol.forms import Position

_MOST_ITEMS = 200
_NAME = re.compile(r"/(?P<typed>[A-Za-z-]*)")
_VALUE = re.compile(r"/(?P<name>[A-Za-z-]+)[ \t]+(?P<typed>\S*)")
_MENTION = re.compile(r"""(?:.*(?<![\w@]))?@(?P<typed>[^\s:@"]*|"[^"\\]*)""", re.DOTALL)
_SAID_OF = {
    "selection": "the code where the editor last asked for actions",
    "diagnostics": "the problems that it knew there",
}
_KEYWORD, _FILE, _VALUE_KIND, _REFERENCE = 14, 17, 12, 18


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is being typed: `typed` begins at `column`, in code points of its line. `command`: the slash command that
    it is a value of."""

    kind: str
    typed: str
    column: int
    command: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """Files by their path; `complete` False: there may be more, or they are still being looked for."""

    paths: Sequence[str] = ()
    complete: bool = True


def wanted_at(document: Document, position: Position, encoding: Encoding) -> Wanted | None:
    """None where nothing completes: outside of the prompt, in a code fence, in the middle of a text."""
    section = prompt_section(document.text)
    if not section.begin <= position.line < section.end:
        return None
    bodies = [line.rstrip("\r\n") for line in document.lines[section.begin : position.line + 1]]
    number = position.line - section.begin
    if next(reversed([n for n, _ in outside_fences(bodies)]), None) != number:
        return None
    before = bodies[number][: column_of(bodies[number], position.character, encoding)]
    if match := _NAME.fullmatch(before):
        return Wanted("command", match["typed"], 0)
    if match := _VALUE.fullmatch(before):
        return Wanted("value", match["typed"], match.start("typed"), match["name"].lower())
    if match := _MENTION.fullmatch(before):
        return Wanted("mention", match["typed"], match.start("typed") - 1)
    return None


def completions(
    document: Document,
    position: Position,
    encoding: Encoding,
    wanted: Wanted,
    *,
    names: Names,
    models: Sequence[str],
) -> dict[str, Any]:
    """A completion list that replaces what has been typed."""
    start = units(document.line(position.line)[: wanted.column], encoding)
    text = document.line(position.line)
    # Editors close a quote by themselves.
    closed = wanted.typed.startswith('"') and text[column_of(text, position.character, encoding) :].startswith('"')
    place = {
        "start": {"line": position.line, "character": start},
        "end": {"line": position.line, "character": position.character + closed},
    }
    complete = names.complete
    match wanted.kind:
        case "command":
            found = list(_commands(wanted.typed))
        case "value":
            found = list(_values(wanted, models))
        case _:
            special = [
                _Item(f"@{word}", _REFERENCE, _SAID_OF[word]) for word in SPECIAL if word.startswith(wanted.typed)
            ]
            typed = wanted.typed.removeprefix('"')
            paths = _matching(names.paths, typed)
            complete = complete and len(paths) <= _MOST_ITEMS
            # Editors compare with what has been typed, with its quote or without one.
            mark = wanted.typed[: len(wanted.typed) - len(typed)]
            found = special + [_Item(written(path), _FILE, "", f"@{mark}{path}") for path in paths[:_MOST_ITEMS]]
    items = [_dressed(item, number, place) for number, item in enumerate(found)]
    return {"isIncomplete": wanted.kind == "mention" and not complete, "items": items}


@dataclass(frozen=True, slots=True)
class _Item:
    text: str
    kind: int
    detail: str
    filter: str = ""


def _commands(typed: str) -> Iterator[_Item]:
    for command in SLASH_COMMANDS:
        if command.name.startswith(typed.lower()):
            yield _Item(f"/{command.name}", _KEYWORD, f"{command.usage}: {command.about}")


def _values(wanted: Wanted, models: Sequence[str]) -> Iterator[_Item]:
    values: Mapping[str, Sequence[str]] = {command.name: command.values for command in SLASH_COMMANDS}
    choices = models if wanted.command == "model" else values.get(wanted.command, ())
    for value in choices:
        if value.startswith(wanted.typed):
            yield _Item(value, _VALUE_KIND, "")


def _matching(paths: Sequence[str], typed: str) -> list[str]:
    """Paths that begin with what was typed first, then those with a name that does, then those that hold it."""
    asked = typed.lower()
    if not asked:
        return list(paths[: _MOST_ITEMS + 1])
    ranked: tuple[list[str], list[str], list[str]] = ([], [], [])
    for path in paths:
        low = path.lower()
        if (at := low.find(asked)) < 0:
            continue
        name = low.rfind("/") + 1
        ranked[0 if at == 0 else 1 if low.startswith(asked, name) else 2].append(path)
    return [path for rank in ranked for path in rank]


def _dressed(item: _Item, number: int, place: Mapping[str, Any]) -> dict[str, Any]:
    dressed = {
        "label": item.text,
        "kind": item.kind,
        "filterText": item.filter or item.text,
        "sortText": f"{number:04}",
        "textEdit": {"range": place, "newText": item.text},
    }
    return dressed | ({"detail": item.detail} if item.detail else {})
