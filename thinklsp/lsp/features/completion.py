"""Completion in a chat document's prompt. It completes slash commands, their values, skills, and mentions after `@`.

`build_completions` uses only memory. `chats/chat_context` provides the file names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsprotocol import types
from lsprotocol.types import CompletionItemKind as Kind
from lsprotocol.types import CompletionList, Position, Range

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.markdown import filter_outside_fences
from thinklsp.core.prompt_syntax import SLASH_COMMANDS, SPECIAL_MENTIONS, NameList, write_mention
from thinklsp.lsp.chats.chat_outline import find_prompt_section
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.protocol.fast_initialize import COMPLETION_TRIGGERS
from thinklsp.lsp.protocol.positions import count_units, find_column
from thinklsp.lsp.server import ThinkLspServer

if TYPE_CHECKING:
    from thinklsp.tools.skill_files import Skill

_MAX_ITEMS = 200
_MAX_DETAIL_CHARACTERS = 200
_NAME = re.compile(r"/(?P<typed>skill:[A-Za-z0-9-]*|[A-Za-z-]*)")
_VALUE = re.compile(r"/(?P<name>[A-Za-z-]+)[ \t]+(?P<typed>\S*)")
_MENTION = re.compile(r"""(?:.*(?<![\w@]))?@(?P<typed>[^\s:@"]*|"[^"\\]*)""", re.DOTALL)
_MENTION_DETAILS = {
    "selection": "the code from your last code action request",
    "diagnostics": "the diagnostics from your last code action request",
}


def register(server: ThinkLspServer) -> None:
    documents, options = server.workspace, types.CompletionOptions(trigger_characters=list(COMPLETION_TRIGGERS))

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, options)
    async def answer_completion(params: types.CompletionParams) -> CompletionList | None:
        document = documents.get(params.text_document.uri)
        if document is None or not server.is_chat(document.uri):
            return None
        try:
            assistant = await server.load()
        except ThinkLspError:
            # The error has already been shown. It must not be shown again for every keystroke.
            return None
        prefix = parse_prefix(document, params.position)
        if prefix is None:
            return CompletionList(is_incomplete=False, items=[])
        models = assistant.sessions.list_models() if prefix.command == "model" else ()
        version = document.version
        names = await assistant.file_names.list_names(document.uri) if prefix.kind == "mention" else NameList()
        skills = (await assistant.find_skills()).skills if prefix.kind == "command" else ()
        if document.version != version:
            # The user has continued typing, so the editor will ask again.
            return CompletionList(is_incomplete=True, items=[])
        return build_completions(document, params.position, prefix, names=names, models=models, skills=skills)


@dataclass(frozen=True, slots=True)
class CompletionPrefix:
    """The text before the cursor that a completion replaces.

    `typed` begins at `column`, in code points. `command` is the slash command whose value the user is typing.
    """

    kind: str
    typed: str
    column: int
    command: str = ""


def parse_prefix(document: Document, position: Position) -> CompletionPrefix | None:
    """Return the text to complete, or None outside the prompt, in a code fence or in ordinary text."""
    section = find_prompt_section(document.text)
    if not section.begin <= position.line < section.end:
        return None
    bodies = [line.rstrip("\r\n") for line in document.lines[section.begin : position.line + 1]]
    number = position.line - section.begin
    if next(reversed([n for n, _ in filter_outside_fences(bodies)]), None) != number:
        return None
    before = bodies[number][: find_column(bodies[number], position.character, document.encoding)]
    if match := _NAME.fullmatch(before):
        return CompletionPrefix("command", match["typed"], 0)
    if match := _VALUE.fullmatch(before):
        return CompletionPrefix("value", match["typed"], match.start("typed"), match["name"].lower())
    if match := _MENTION.fullmatch(before):
        return CompletionPrefix("mention", match["typed"], match.start("typed") - 1)
    return None


def build_completions(
    document: Document,
    position: Position,
    prefix: CompletionPrefix,
    *,
    names: NameList,
    models: Sequence[str],
    skills: Sequence[Skill] = (),
) -> CompletionList:
    """Build the completion items, each of which replaces the typed text."""
    text, encoding = document.get_line(position.line), document.encoding
    start = count_units(text[: prefix.column], encoding)
    # The editor may have inserted a closing quote after the cursor.
    behind = text[find_column(text, position.character, encoding) :]
    has_closing_quote = prefix.typed.startswith('"') and behind.startswith('"')
    place = Range(Position(position.line, start), Position(position.line, position.character + has_closing_quote))
    is_complete = True
    match prefix.kind:
        case "command":
            rows = list(_complete_commands(prefix.typed, skills))
        case "value":
            rows = list(_complete_values(prefix, models))
        case _:
            rows, is_complete = _complete_mention(prefix.typed, names)
    items = [
        types.CompletionItem(
            text,
            kind=kind,
            detail=detail or None,
            filter_text=filter_text,
            sort_text=f"{number:04}",
            text_edit=types.TextEdit(place, text),
        )
        for number, (text, kind, detail, filter_text) in enumerate(rows)
    ]
    return CompletionList(is_incomplete=not is_complete, items=items)


_Row = tuple[str, Kind, str, str]
"""The text, the kind, the detail and the filter text of an item."""


def _complete_commands(typed: str, skills: Sequence[Skill]) -> Iterator[_Row]:
    for command in SLASH_COMMANDS:
        details = {command.name: f"{command.usage}: {command.description}"}
        if command.argument == "skill":
            details = {f"{command.name}:{skill.name}": " ".join(skill.description.split()) for skill in skills}
        for name, detail in details.items():
            if name.startswith(typed.lower()):
                yield f"/{name}", Kind.Keyword, detail[:_MAX_DETAIL_CHARACTERS], f"/{name}"


def _complete_values(prefix: CompletionPrefix, models: Sequence[str]) -> Iterator[_Row]:
    values: Mapping[str, Sequence[str]] = {command.name: command.values for command in SLASH_COMMANDS}
    choices = models if prefix.command == "model" else values.get(prefix.command, ())
    return ((value, Kind.Value, "", value) for value in choices if value.startswith(prefix.typed))


def _complete_mention(typed: str, names: NameList) -> tuple[list[_Row], bool]:
    """Return the special words and the paths that match the typed text, and whether they are all.

    Paths that begin with the text come first, then matching file names.
    """
    path_part = typed.removeprefix('"')
    query = path_part.lower()

    def rank(path: str) -> int:
        low = path.lower()
        return 0 if low.startswith(query) else 1 if low.startswith(query, low.rfind("/") + 1) else 2

    paths = sorted((path for path in names.paths if query in path.lower()), key=rank)
    special = [word for word in SPECIAL_MENTIONS if word.startswith(typed)]
    # Editors compare the typed text with the filter text, so the filter text must begin with the same quote, if any.
    mark = typed[: len(typed) - len(path_part)]
    rows = [(f"@{word}", Kind.Reference, _MENTION_DETAILS[word], f"@{word}") for word in special]
    rows += [(write_mention(path), Kind.File, "", f"@{mark}{path}") for path in paths[:_MAX_ITEMS]]
    return rows, names.complete and len(paths) <= _MAX_ITEMS
