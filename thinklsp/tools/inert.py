"""Markdown that says what it says and does nothing: what a preview would load or run by itself becomes text.

An answer may have been dictated by what the model has read, and a preview fetches an image before anybody has looked at
its address, with whatever was put into it. So images, elements with attributes, diagrams that name addresses, and links
to anything but pages and files are spelled out. References are not read at all: `[a]: address` could turn words of an
earlier answer into an image. Links to pages stay, and lead nowhere until they are chosen.

What is dangerous is found by a CommonMark parser, once for each way in which previews read differently. Only lines in
which something was found are changed, by a backslash that a preview does not show. Everything else stays as it is.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from thinklsp.core.lines import split_lines
from thinklsp.workers.pool import WorkFailed, run_in_worker

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Kind = Literal["image", "element", "link", "reference", "diagram"]
Found = tuple[Kind, int, int]
"""In which lines, counted from 0, the last one not included."""

# Most answers hold none of this and are not parsed: they name pages at most.
_TELLING = re.compile(r"!\[|<[A-Za-z!?/]|\]\((?!https?://[^\s()<>\\&]*\)|[\w./#-]*\))|\]:")
_INDENTED = re.compile(r"^ *(?: {4}|\t)", re.MULTILINE)
_DIAGRAMS = ("mermaid", "vega", "plantuml", "puml", "graphviz", "dot", "wavedrom", "kroki", "d2")
_DIAGRAM = re.compile(rf"(?:`{{3}}|~{{3}})[^\w\r\n]*(?:{'|'.join(_DIAGRAMS)})", re.IGNORECASE)
_ADDRESS = re.compile(r"//|\\|[#&]\w+;|@\{|\b(?:click|href|img|image|include)\b", re.IGNORECASE)

# What an element without attributes may be: any but those whose content is read by other rules.
_HARMLESS = re.compile(
    r"<!--[^<>]*-->|</?(?!(?:script|style|pre|textarea|title|xmp|iframe|no\w+|plaintext|template|svg|math)\b)"
    r"[a-z][a-z0-9-]*\s*/?>",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"<[A-Za-z!?/]")
# A page, an address for mail, or no scheme at all.
_PLAIN_LINK = re.compile(r"(?:https?|mailto):|[^:]*(?:[/?#]|\Z)", re.IGNORECASE)

# The sign that gets the backslash. One that has it already is left alone.
_SIGNS: dict[Kind, str] = {
    "image": r"(?<=!)\[",
    "element": r"<(?=[A-Za-z!?/])",
    "link": r"\](?=\()|<(?=[A-Za-z])",
    "reference": r"\](?=:)",
}
_UNESCAPED = {kind: re.compile(rf"(?<!\\)((?:\\\\)*)({sign})") for kind, sign in _SIGNS.items()}
_ROUNDS = 8
# The parser reads 50 kB a second and keeps 600 bytes for each of a nested list.
_FEW_CHARACTERS = 20_000
_MAX_SECONDS = 10.0


def inert(text: str) -> str:
    """The same text, with nothing in it that acts before it is chosen; without byte order marks, which hide what the
    line behind them begins with."""
    text = text.lstrip("\ufeff")
    if not _TELLING.search(_HARMLESS.sub("", text)) and not _DIAGRAM.search(text):
        return text
    with suppress(RecursionError):
        for _ in range(_ROUNDS):
            found = {one for parser in _parsers(text) for one in _dangers(parser, text)}
            if not found:
                return text
            text = _spelled_out(text, found)
    return plain(text)


async def make_inert(text: str, work: Callable[[str], str] = inert) -> str:
    """Return `work(text)`. A long text is read in a worker process; if that takes more than 10 s or too much memory,
    the text comes back without any Markdown."""
    if len(text) <= _FEW_CHARACTERS:
        return await asyncio.to_thread(work, text)
    try:
        return await run_in_worker(_MAX_SECONDS, work, text)
    except WorkFailed:
        return await asyncio.to_thread(plain, text)


def plain(text: str) -> str:
    """For what is nested beyond sense, and no parser reads to its end: no Markdown any more."""
    return re.sub(r"([\[<`~])", r"\\\1", text.replace("\\", "/"))


def fenced_lines(text: str) -> frozenset[int]:
    """The lines, counted from 0, behind which a code fence is open as previews see it."""
    inside: set[int] = set()
    if "```" not in text and "~~~" not in text:
        return frozenset()
    lines = split_lines(text)
    for token in _parser().parse(text):
        if token.type == "fence" and token.map is not None:
            begin, end = token.map
            closed = end - begin > 1 and re.fullmatch(
                rf"[\s>]*{token.markup[0]}{{{len(token.markup)},}}\s*", lines[end - 1]
            )
            # One that stands in a list or a quote ends with it.
            inside.update(range(begin, end if end == len(lines) and not closed and token.level == 0 else end - 1))
    return frozenset(inside)


def _spelled_out(text: str, found: set[Found]) -> str:
    lines = split_lines(text)
    for kind, begin, end in found:
        if kind == "diagram":
            lines[begin] = re.sub(r"(`{3,}|~{3,}).*", r"\1text", lines[begin].rstrip("\r\n")) + _end_of(lines[begin])
            continue
        for number in range(begin, min(end, len(lines))):
            lines[number] = _UNESCAPED[kind].sub(r"\1\\\2", lines[number])
    return "".join(lines)


def _end_of(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _dangers(parser: MarkdownIt, text: str) -> Iterator[Found]:
    known: dict[str, Any] = {}
    lines = (0, text.count("\n") + text.count("\r") + 1)
    for token in parser.parse(text, known):
        if token.map is not None:
            lines = token.map[0], token.map[1]
        for kind in _kinds(token):
            yield kind, *lines
    for one in (*known.get("references", {}).values(), *known.get("duplicate_refs", ())):
        yield "reference", one["map"][0], one["map"][1]


def _kinds(token: Token) -> Iterator[Kind]:
    match token.type:
        case "image":
            yield "image"
        case "html_block" | "html_inline" if _MARKUP.search(_HARMLESS.sub("", token.content)):
            yield "element"
        case "link_open" if not _PLAIN_LINK.match(str(token.attrGet("href") or "")):
            yield "link"
        case "fence" if _ADDRESS.search(token.content) and _DIAGRAM.match(f"```{token.info}"):
            yield "diagram"
        case _:
            for child in token.children or ():
                yield from _kinds(child)


def _parsers(text: str) -> Iterator[MarkdownIt]:
    """One for each way to read it. Tables cut code within lines, notes indent their text, and formulas take backticks
    and fences for their own, so that code ends where other previews do not see it."""
    yield _parser()
    if "|" in text:
        yield _parser("+table")
    if _INDENTED.search(text):
        yield _parser("+table", "-code")
    if "$" in text:
        yield _parser("+table", "-code", "-backticks")
    if "$$" in text:
        yield _parser("+table", "-code", "-backticks", "-fence")


@cache
def _parser(*rules: str) -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - few answers need it, and it takes long to load.

    class AnyLink(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # noqa: ARG002, N802 - what is allowed is decided here.
            return True

    parser = AnyLink("commonmark", {"maxNesting": sys.maxsize})
    parser.enable([rule[1:] for rule in rules if rule[0] == "+"])
    parser.disable([rule[1:] for rule in rules if rule[0] == "-"])
    parser.parse("[x](y)")  # Its rules are put in order at their first use, which two threads may not do at once.
    return parser
