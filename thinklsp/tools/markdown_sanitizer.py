"""A Markdown sanitizer, which escapes content that a preview loads or runs without a click.

Text from a file can make the model write such content. For example, a preview fetches an image immediately, and the
image's URL can transmit secret data. The sanitizer therefore escapes images, elements with attributes, diagrams with
URLs, reference definitions, and links to anything other than web pages and files. It finds this content with a
CommonMark parser for each common dialect.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

from thinklsp.core.lines import split_lines
from thinklsp.workers import WorkFailed, run_in_worker

ActiveKind = Literal["image", "element", "link", "reference", "diagram"]
_ActiveContent = tuple[ActiveKind, int, int]
"""The kind of active content and its lines, counted from 0; the end is exclusive."""

# Signs of content that may be active, except links to web pages. Most answers contain no such signs and are not parsed.
_ACTIVE_HINT = re.compile(r"!\[|<[A-Za-z!?/]|\]\((?!https?://[^\s()<>\\&]*\)|[\w./#-]*\))|\]:")
_INDENTED = re.compile(r"^ *(?: {4}|\t)", re.MULTILINE)
_DIAGRAMS = ("mermaid", "vega", "plantuml", "puml", "graphviz", "dot", "wavedrom", "kroki", "d2")
_DIAGRAM = re.compile(rf"(?:`{{3}}|~{{3}})[^\w\r\n]*(?:{'|'.join(_DIAGRAMS)})", re.IGNORECASE)
_ADDRESS = re.compile(r"//|\\|[#&]\w+;|@\{|\b(?:click|href|img|image|include)\b", re.IGNORECASE)

# Elements without attributes, except elements such as `<script>` whose contents follow other parsing rules.
_HARMLESS = re.compile(
    r"<!--[^<>]*-->|</?(?!(?:script|style|pre|textarea|title|xmp|iframe|no\w+|plaintext|template|svg|math)\b)"
    r"[a-z][a-z0-9-]*\s*/?>",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"<[A-Za-z!?/]")
# The URL of a page, an email address, or a URL without a scheme.
_PLAIN_LINK = re.compile(r"(?:https?|mailto):|[^:]*(?:[/?#]|\Z)", re.IGNORECASE)

# Patterns for the character to escape in each kind of active content.
_SIGNS: dict[ActiveKind, str] = {
    "image": r"(?<=!)\[",
    "element": r"<(?=[A-Za-z!?/])",
    "link": r"\](?=\()|<(?=[A-Za-z])",
    "reference": r"\](?=:)",
}
_UNESCAPED = {kind: re.compile(rf"(?<!\\)((?:\\\\)*)({sign})") for kind, sign in _SIGNS.items()}
_MAX_ROUNDS = 8
# The parser processes about 50 kB per second, so longer texts are parsed in a worker process.
_MAX_INLINE_CHARACTERS = 20_000
_MAX_SECONDS = 10.0


def sanitize(text: str) -> str:
    """Escape content in a Markdown text that a preview loads or runs without a click.

    Byte order marks are removed, because they hide how the next line begins.
    """
    text = text.lstrip("\ufeff")
    if not _ACTIVE_HINT.search(_HARMLESS.sub("", text)) and not _DIAGRAM.search(text):
        return text
    with suppress(RecursionError):
        for _ in range(_MAX_ROUNDS):
            content = {item for parser in _choose_parsers(text) for item in _find_active_content(parser, text)}
            if not content:
                return text
            text = _escape_active_content(text, content)
    return escape_all(text)


async def sanitize_in_background(text: str, work: Callable[[str], str] = sanitize) -> str:
    """Return `work(text)`, computed in a thread or, for long texts, in a worker process.

    If the worker takes longer than 10 seconds or uses too much memory, all Markdown in the text is escaped instead.
    """
    if len(text) <= _MAX_INLINE_CHARACTERS:
        return await asyncio.to_thread(work, text)
    try:
        return await run_in_worker(_MAX_SECONDS, work, text)
    except WorkFailed:
        return await asyncio.to_thread(escape_all, text)


def escape_all(text: str) -> str:
    """Escape all Markdown in a text, even if the text is nested too deeply for the parser."""
    return re.sub(r"([\[<`~])", r"\\\1", text.replace("\\", "/"))


def find_fenced_lines(text: str) -> frozenset[int]:
    """Return the indexes of the lines after which a code fence is still open."""
    inside: set[int] = set()
    if "```" not in text and "~~~" not in text:
        return frozenset()
    lines = split_lines(text)
    for token in _build_parser().parse(text):
        if token.type == "fence" and token.map is not None:
            begin, end = token.map
            closed = end - begin > 1 and re.fullmatch(
                rf"[\s>]*{token.markup[0]}{{{len(token.markup)},}}\s*", lines[end - 1]
            )
            # A fence inside a list or a block quote ends when the list or quote ends.
            inside.update(range(begin, end if end == len(lines) and not closed and token.level == 0 else end - 1))
    return frozenset(inside)


def _escape_active_content(text: str, active_content: set[_ActiveContent]) -> str:
    lines = split_lines(text)
    for kind, begin, end in active_content:
        if kind == "diagram":
            lines[begin] = re.sub(r"(`{3,}|~{3,})[^\r\n]*", r"\1text", lines[begin])
            continue
        for number in range(begin, min(end, len(lines))):
            lines[number] = _UNESCAPED[kind].sub(r"\1\\\2", lines[number])
    return "".join(lines)


def _find_active_content(parser: MarkdownIt, text: str) -> Iterator[_ActiveContent]:
    environment: dict[str, Any] = {}
    lines = (0, text.count("\n") + text.count("\r") + 1)
    for token in parser.parse(text, environment):
        if token.map is not None:
            lines = token.map[0], token.map[1]
        for kind in _classify(token):
            yield kind, *lines
    for definition in (*environment.get("references", {}).values(), *environment.get("duplicate_refs", ())):
        yield "reference", definition["map"][0], definition["map"][1]


def _classify(token: Token) -> Iterator[ActiveKind]:
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
                yield from _classify(child)


def _choose_parsers(text: str) -> Iterator[MarkdownIt]:
    """Yield a parser for each Markdown dialect that a preview may use.

    Depending on the dialect, tables, footnotes and formulas change where code begins and ends.
    """
    yield _build_parser()
    if "|" in text:
        yield _build_parser("+table")
    if _INDENTED.search(text):
        yield _build_parser("+table", "-code")
    if "$" in text:
        yield _build_parser("+table", "-code", "-backticks")
    if "$$" in text:
        yield _build_parser("+table", "-code", "-backticks", "-fence")


class _AnyLink(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: ARG002, N802 - accept all links here
        return True


@cache
def _build_parser(*rules: str) -> MarkdownIt:
    parser = _AnyLink("commonmark", {"maxNesting": sys.maxsize})
    parser.enable([rule[1:] for rule in rules if rule[0] == "+"])
    parser.disable([rule[1:] for rule in rules if rule[0] == "-"])
    parser.parse("[x](y)")  # The first call of `parse` sorts the parser's rules, which is not thread-safe.
    return parser
