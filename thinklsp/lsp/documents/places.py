"""What stands at a place in a document: a definition, a comment that asks for something.

Line patterns of the common languages, nothing more: code actions are answered from memory within milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from thinklsp.lsp.documents.comments import Comment, comments
from thinklsp.lsp.documents.open_documents import Document

_DEFINITION = re.compile(
    r"""^\s*\(?(?:(?:export|default|public|private|protected|internal|static|abstract|final|sealed|async|pub(?:\([^)]*\))?
    |unsafe|extern|inline|virtual|override|const|partial|open|suspend|local|data)\s+)*
    (?:def|class|function\*?|func|fun|fn|interface|struct|enum|trait|impl|type|module|namespace|record|object|protocol
    |extension|sub|defmodule|defp|defn-?|defun|macro_rules!)(?<=[\w!*-])[\s(]""",
    re.VERBOSE,
)
# Type first, as in C, C++, Java and C#: `int add(int a, int b) {`
_TYPED_FUNCTION = re.compile(
    r"^\s*(?!(?:return|else|new|throw|case|if|for|while|switch|catch|do|await|yield|delete|using|import)\b)"
    r"[A-Za-z_][\w:<>,\[\]&* .]*\s+[*&]*[A-Za-z_~][\w:~]*\s*\([^;]*\)?[^;]*\{?\s*$"
)
# A method in a class of JavaScript, a function of a shell: `render(props) {`
_BARE_FUNCTION = re.compile(
    r"^\s*(?!(?:if|for|while|switch|catch|with|function|return|do|else|select|match)\b)"
    r"(?:(?:async|static|get|set|public|private|protected)\s+)*[*#]*[\w$-]+\s*\([^()]*\)\s*(?::[^={]+)?\{\s*\}?\s*$"
)
_ARROW = re.compile(r"^\s*(?:export\s+)?(?:const|let|var)\s+\w+\s*(?::[^=]+)?=\s*(?:async\s+)?(?:\([^)]*\)|\w+)\s*=>")
_TYPED_LANGUAGES = frozenset(("c", "cpp", "csharp", "java", "objective-c", "cuda-cpp", "dart", "arduino"))

_TYPED_ENDINGS = (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".cs", ".java", ".m", ".cu", ".dart", ".ino")
# The first word before a sign that only follows names, but words like `func` in `func (s *Server) Run()`.
_NAME = re.compile(r"(?P<name>[\w$]+)\s*(?P<sign>[({:=<]|$)")
_KEYWORDS = frozenset(("def", "func", "fun", "fn", "function", "sub", "defn", "impl", "async"))
_CLASS = re.compile(r"\b(?:class|interface|struct|enum|trait|record|object|protocol|type|module|namespace)\s+$")
_CLOSING = frozenset(")}]")
# Lines that are looked through for the head of a definition.
_FURTHEST = 400

_MARK_FIRST = re.compile(r"AI(?P<mark>[!?])(?=$|[\s:,-])[\s:,-]*(?P<text>.*)$", re.IGNORECASE)
_MARK_LAST = re.compile(r"(?<![\w.@/-])AI(?P<mark>[!?])$", re.IGNORECASE)
_MARK = re.compile(r"\bAI[!?]", re.IGNORECASE)
# How far from a line the mark of its comment may stand, and characters that are looked through for what is a comment.
_NEAR, _LOOKED_THROUGH, _AT_ONCE = 40, 100_000, 512
_ENDS = re.compile(r"\r\n?")


@dataclass(frozen=True, slots=True)
class Trigger:
    """A comment that asks for something. `mark`: `!` wants it done, `?` answered. Lines count from 0."""

    text: str
    mark: str
    first: int
    last: int


def has_definition(document: Document, line: int) -> bool:
    return _is_definition(document.line(line), typed=document.language_id in _TYPED_LANGUAGES)


def enclosing_definition(lines: Sequence[str], line: int, name: str) -> str | None:
    """What people call the innermost definition around a line, `mean()` or `Stats`; None where there is none near.
    `lines` may have their ends; `name`: that of the file, whose ending tells how its language spells functions."""
    typed = name.endswith(_TYPED_ENDINGS)
    depth: int | None = None
    for number in range(min(line, len(lines) - 1), max(-1, line - _FURTHEST), -1):
        text = lines[number].rstrip()
        indent = len(text) - len(text.lstrip())
        if not text or (depth is not None and indent >= depth):
            continue
        if _is_definition(text, typed=typed):
            return _definition_name(text)
        # The line that ends a block stands as far out as its head, and belongs to it.
        depth = indent + 1 if number == line and text.lstrip()[0] in _CLOSING else indent
    return None


def _is_definition(text: str, *, typed: bool) -> bool:
    if _DEFINITION.match(text) or _ARROW.match(text) or _BARE_FUNCTION.match(text):
        return True
    return typed and _TYPED_FUNCTION.match(text) is not None


def _definition_name(text: str) -> str | None:
    for match in _NAME.finditer(text):
        if match["name"] not in _KEYWORDS:
            called = match["sign"] == "(" and not _CLASS.search(text[: match.start()])
            return f"{match['name']}()" if called else match["name"]
    return None


def comment_trigger(document: Document, line: int) -> Trigger | None:
    """The comment at this line, or lines of comments, that begins or ends with `AI!` or `AI?` and says something."""
    near = document.lines[max(0, line - _NEAR) : line + _NEAR] if 0 <= line < document.line_count else ()
    if not any(_MARK.search(text) for text in near):
        return None
    start, text = _text_around(document, line)
    found = _triggers(start, comments(text, document.language_id, max(0, line - _NEAR - start)))
    return next((trigger for trigger in found if trigger.first <= line <= trigger.last), None)


def _text_around(document: Document, line: int) -> tuple[int, str]:
    """The number of its first line, and the text from there to a little behind the line: whether something is a string
    is told by what stands before it."""
    lines, stop = document.lines, min(line + _NEAR, document.line_count)
    first, left, many = stop, _LOOKED_THROUGH, _AT_ONCE
    while first and many:
        size = sum(map(len, lines[max(0, first - many) : first]))
        if size <= left:
            first, left = max(0, first - many), left - size
        else:
            many //= 2
    text = _ENDS.sub("\n", "".join(lines[first:stop]))
    return first, text if stop == document.line_count else text[:-1]


def _triggers(start: int, found: Iterable[Comment]) -> Iterator[Trigger]:
    run: list[tuple[int, str]] = []
    for comment in found:
        own = [(start + number, words) for number, words in enumerate(comment.lines, comment.first)]
        # Comments that have their lines to themselves, one below the other, are one text.
        if not comment.alone or comment.block or not run or run[-1][0] + 1 != own[0][0]:
            yield from _marked(run)
            run = []
        run += own
        if not comment.alone or comment.block:
            yield from _marked(run)
            run = []
    yield from _marked(run)


def _marked(run: Sequence[tuple[int, str]]) -> Iterator[Trigger]:
    """What lines of a comment ask for. An instruction ends with its mark, or goes from its mark to an empty line."""
    said: list[tuple[int, str]] = []
    mark = ""
    for number, text in (*run, (-1, "")):
        first, last = _MARK_FIRST.match(text), _MARK_LAST.search(text)
        if last is not None and (said or first is None):
            yield from _trigger([*said, (number, text[: last.start()])], mark or last["mark"])
            said, mark = [], ""
        elif first is not None or not text:
            yield from _trigger(said, mark)
            said, mark = ([], "") if first is None else ([(number, first["text"])], first["mark"])
        else:
            said.append((number, text))


def _trigger(said: Sequence[tuple[int, str]], mark: str) -> Iterator[Trigger]:
    words = "\n".join(text.strip() for _, text in said).strip()
    if mark and words:
        yield Trigger(words, mark, said[0][0], said[-1][0])
