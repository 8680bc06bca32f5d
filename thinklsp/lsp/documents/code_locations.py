"""A search for definitions, incomplete code and instruction comments near a line of a document.

The search uses only line patterns for common languages, because code actions must be answered from memory within
milliseconds. Each language also has patterns for its comment markers and its strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from lsprotocol.types import Position, Range

from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.protocol.positions import count_units

_DOUBLE, _SINGLE = r'"(?:\\.|[^"\\\n])*"', r"'(?:\\.|[^'\\\n])*'"
# A quote before a name, as in Rust's lifetime `'a`, does not begin a string in languages with character literals.
_CHARACTER = r"'(?:\\[^'\n]*|[^'\\\n])'"
_TRIPLE = (r'(?s:"""(?:\\.|[^\\])*?""")', r"(?s:'''(?:\\.|[^\\])*?''')")
_BACKTICK = r"(?s:`(?:\\.|[^`\\])*`)"
_HASH, _SLASHES, _DASHES = r"(?<!\S)\#+", r"(?<!:)//+", r"--+"
_C_BLOCK = (r"/\*+!?", r"\*+/")
_HTML = (r"<!--+", r"--+>")
_LANGUAGES: dict[str, str] = {
    "python": "python starlark bazel",
    "hash": "ruby perl perl6 raku shellscript sh bash zsh fish yaml toml makefile make dockerfile docker r elixir "
    "julia nim crystal coffeescript tcl awk cmake nix gdscript ignore gitignore dotenv properties git-commit "
    "git-rebase graphql hcl terraform just puppet jsonnet nushell nu elvish conf config",
    "c": "c cpp objective-c objective-cpp csharp rust cuda cuda-cpp zig verilog systemverilog solidity glsl hlsl wgsl "
    "proto proto3 protobuf arduino d v odin jsonc json5",
    "java": "java kotlin scala groovy swift dart gradle",
    "javascript": "javascript javascriptreact typescript typescriptreact less scss sass stylus qml reason rescript",
    "go": "go",
    "php": "php",
    "css": "css",
    "sql": "sql mysql plsql pgsql postgres sqlite ada vhdl",
    "lua": "lua luau",
    "haskell": "haskell lhaskell elm purescript idris agda",
    "lisp": "lisp commonlisp common-lisp clojure scheme racket emacs-lisp elisp fennel janet",
    "assembly": "asm assembly nasm gas llvm wat",
    "percent": "erlang prolog matlab octave postscript latex tex bibtex plaintex",
    "html": "html xml xsl svg markdown markdown_inline mdx quarto rmd htmldjango",
    "script in html": "vue svelte astro",
    "basic": "vb vba vbscript basic freebasic aspvbscript visualbasic",
    "ocaml": "ocaml sml coq",
    "pascal": "pascal delphi objectpascal",
    "fsharp": "fsharp",
    "fortran": "fortran fortran-modern fortran90 fortran_fixed-form",
    "powershell": "powershell ps1",
}
_CHARACTERS = re.compile(r"[^\n]")
_SIGNS_BY_LANGUAGE = {language: signs for signs, languages in _LANGUAGES.items() for language in languages.split()}
_DEFINITION = re.compile(
    r"""^\s*\(?(?:(?:export|default|public|private|protected|internal|static|abstract|final|sealed|async|pub(?:\([^)]*\))?
    |unsafe|extern|inline|virtual|override|const|partial|open|suspend|local|data)\s+)*
    (?:def|class|function\*?|func|fun|fn|interface|struct|enum|trait|impl|type|module|namespace|record|object|protocol
    |extension|sub|defmodule|defp|defn-?|defun|macro_rules!)(?<=[\w!*-])[\s(]""",
    re.VERBOSE,
)
# Matches functions whose return type comes first, as in C, C++, Java and C#: `int add(int a, int b) {`
_TYPED_FUNCTION = re.compile(
    r"^\s*(?!(?:return|else|new|throw|case|if|for|while|switch|catch|do|await|yield|delete|using|import)\b)"
    r"[A-Za-z_][\w:<>,\[\]&* .]*\s+[*&]*[A-Za-z_~][\w:~]*\s*\([^;]*\)?[^;]*\{?\s*$"
)
# Matches JavaScript class methods and shell functions: `render(props) {`
_BARE_FUNCTION = re.compile(
    r"^\s*(?!(?:if|for|while|switch|catch|with|function|return|do|else|select|match)\b)"
    r"(?:(?:async|static|get|set|public|private|protected)\s+)*[*#]*[\w$-]+\s*\([^()]*\)\s*(?::[^={]+)?\{\s*\}?\s*$"
)
_ARROW = re.compile(r"^\s*(?:export\s+)?(?:const|let|var)\s+\w+\s*(?::[^=]+)?=\s*(?:async\s+)?(?:\([^)]*\)|\w+)\s*=>")
_TYPED_LANGUAGES = frozenset(("c", "cpp", "csharp", "java", "objective-c", "cuda-cpp", "dart", "arduino"))
# Matches a word before `(`, `{`, `:`, `=` or `<`. The first match that is not a keyword is the definition's name.
_NAME = re.compile(r"(?P<name>[\w$]+)\s*(?P<sign>[({:=<]|$)")
_KEYWORDS = frozenset(("def", "func", "fun", "fn", "function", "sub", "defn", "impl", "async"))
_CLASS = re.compile(r"\b(?:class|interface|struct|enum|trait|record|object|protocol|type|module|namespace)\s+$")
# The number of lines to search upward for a definition, and downward for the definition's end.
_MAX_LINES_UPWARDS, _MAX_LINES_DOWNWARDS = 400, 2_000
_MAX_HEAD_LENGTH, _MAX_DECORATORS = 500, 20
_BLOCK_BEGIN = re.compile(r"\s*(?:[)\]].*[:{]|\{|where)\s*$")
_BLOCK_END = re.compile(r"\s*(?:[})\]]|end\b|fi\b|done\b|esac\b)")
_DECORATOR = re.compile(r"\s*(?:@|#\[)\w")
_MARK_FIRST = re.compile(r"AI(?P<mark>[!?])(?=$|[\s:,-])[\s:,-]*(?P<text>.*)$", re.IGNORECASE)
_MARK_LAST = re.compile(r"(?<![\w.@/-])AI(?P<mark>[!?])$", re.IGNORECASE)
_MARK = re.compile(r"\bAI[!?]", re.IGNORECASE)
# The limits of the search for an instruction comment: lines above and below, and characters and lines to read.
_NEAR, _LOOKED_THROUGH, _AT_ONCE = 40, 100_000, 512
_ENDS = re.compile(r"\r\n?")
# The maximum number of selected lines to check, of lines in an empty definition, and of characters in these lines.
_SELECTED, _MAX_BODY_LINES, _MAX_BODY_CHARACTERS = 200, 60, 20_000
_TODO = re.compile(r"\b(?:TODO|FIXME)\b")
_EMPTY_STATEMENT = r"(?:pass|\.\.\.|raise NotImplementedError(?:\(.*\))?|todo!\(.*\);?|unimplemented!\(.*\);?)"
_EMPTY = re.compile(rf"\s*{_EMPTY_STATEMENT}\s*")
# Matches the end of a definition with an empty body: braces, an indented block, or `end`. Quotes mask the strings.
_EMPTY_BODY = re.compile(
    rf"(?:(?<!\()\{{\s*+{_EMPTY_STATEMENT}?+\s*+\}}[;,]*+"
    rf"|:[\s\"]*+{_EMPTY_STATEMENT}?+[\s\"]*+"
    r"|\A[^\n]*+\n\s*+end)\s*+\Z"
)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment. `lines` is its text without comment markers. `first` is the comment's first line in the document.

    `is_alone` is True if no code precedes the comment on its line.
    """

    first: int
    lines: tuple[str, ...]
    is_alone: bool
    is_block: bool


@dataclass(frozen=True, slots=True)
class _Signs:
    """The comment markers and string patterns of a language.

    `starting` contains markers that can also be operators or quotes and are therefore recognized only at the beginning
    of a line.
    """

    line: str = ""
    blocks: tuple[tuple[str, str], ...] = ()
    strings: tuple[str, ...] = ()
    starting: str = ""


_SIGNS: dict[str, _Signs] = {
    "python": _Signs(r"\#+", strings=(*_TRIPLE, _DOUBLE, _SINGLE)),
    "hash": _Signs(_HASH, strings=(_DOUBLE, _SINGLE)),
    "c": _Signs(_SLASHES, (_C_BLOCK,), (_DOUBLE, _CHARACTER)),
    "java": _Signs(_SLASHES, (_C_BLOCK,), (_TRIPLE[0], _DOUBLE, _CHARACTER)),
    "javascript": _Signs(_SLASHES, (_C_BLOCK,), (_BACKTICK, _DOUBLE, _SINGLE)),
    "go": _Signs(_SLASHES, (_C_BLOCK,), (r"`[^`]*`", _DOUBLE, _CHARACTER)),
    "php": _Signs(rf"{_SLASHES}|{_HASH}(?!\[)", (_C_BLOCK, _HTML), (_DOUBLE, _SINGLE)),
    "css": _Signs("", (_C_BLOCK,), (_DOUBLE, _SINGLE)),
    "sql": _Signs(_DASHES, (_C_BLOCK,), (_DOUBLE, r"'(?:''|[^'\n])*'")),
    "lua": _Signs(r"--+(?!\[=*\[)", ((r"--\[(?:=*)\[", r"\](?:=*)\]"),), (r"(?s:\[\[.*?\]\])", _DOUBLE, _SINGLE)),
    "haskell": _Signs(r"--+(?![!#$%&*+./<=>?@\\^|~:])", ((r"\{-+", r"-+\}"),), (_DOUBLE, _CHARACTER)),
    "lisp": _Signs(r";+", ((r"\#\|", r"\|\#"),), (r'(?s:"(?:\\.|[^"\\])*")',)),
    "assembly": _Signs(rf";+|{_SLASHES}|{_HASH}", (_C_BLOCK,), (_DOUBLE, _CHARACTER)),
    "percent": _Signs(r"(?<!\\)%+", strings=(_DOUBLE,)),
    "html": _Signs("", (_HTML,)),
    "script in html": _Signs(_SLASHES, (_C_BLOCK, _HTML), (_BACKTICK, _DOUBLE, _SINGLE)),
    "basic": _Signs(r"'+", strings=(r'"[^"\n]*"',), starting=r"REM\b"),
    "ocaml": _Signs(blocks=((r"\(\*+", r"\*+\)"),), strings=(_DOUBLE, _CHARACTER)),
    "pascal": _Signs(_SLASHES, ((r"\(\*+", r"\*+\)"), (r"\{", r"\}")), (_SINGLE,)),
    "fsharp": _Signs(_SLASHES, ((r"\(\*+", r"\*+\)"),), (_TRIPLE[0], _DOUBLE, _CHARACTER)),
    "fortran": _Signs(r"!+", strings=(_DOUBLE, _SINGLE)),
    "powershell": _Signs(_HASH, ((r"<\#", r"\#>"),), (_DOUBLE, r"'[^'\n]*'")),
    # The markers for unknown languages. Ambiguous markers are recognized only at the beginning of a line.
    "": _Signs(
        rf"{_HASH}|(?<!\S)//+", (_C_BLOCK, _HTML), (_DOUBLE, _SINGLE), starting=r"""--+|;+|%+|"+|\*+(?!/)|@?REM\b|::"""
    ),
}  # fmt: skip


def find_comments(text: str, language_id: str, since: int = 0) -> Iterator[Comment]:
    """Yield the comments that end on line `since` or later.

    `language_id` is the editor's name for the language. An unknown language gets the most common markers.
    """
    signs = _SIGNS_BY_LANGUAGE.get(language_id.casefold(), "")
    first_offset = len(text) - len(text.split("\n", since)[-1])
    number, position = since, first_offset
    for match in _compile_tokens(signs).finditer(text):
        if match.end() < first_offset or match.lastgroup == "string":
            continue
        start = match.start()
        number += text.count("\n", position, start) if start >= position else -text.count("\n", start, position)
        position = start
        begin = text.rfind("\n", 0, start) + 1
        lines = match[0].split("\n")
        yield Comment(
            number,
            tuple(_compile_edges(signs, first=index == 0).sub("", line).strip() for index, line in enumerate(lines)),
            is_alone=not text[begin:start].strip(),
            is_block=match.lastgroup == "block",
        )


def mask_comments_and_strings(text: str, language_id: str) -> str:
    """Return the text with comments masked by spaces and strings masked by quotes. Line breaks are preserved."""
    signs = _SIGNS_BY_LANGUAGE.get(language_id.casefold(), "")
    return _compile_tokens(signs).sub(lambda match: _CHARACTERS.sub(_choose_mask(match), match[0]), text)


def _choose_mask(match: re.Match[str]) -> str:
    return '"' if match.lastgroup == "string" else " "


@cache
def _compile_tokens(name: str) -> re.Pattern[str]:
    """Compile the pattern for comments and strings. Strings are matched so that markers inside them are ignored."""
    signs = _SIGNS[name]
    parts = [f"(?P<string>{'|'.join(signs.strings)})"] if signs.strings else []
    blocks = "|".join(rf"{begin}.*?(?:{end}|\Z)" for begin, end in signs.blocks)
    parts.append(f"(?P<block>(?s:{blocks}))" if blocks else r"(?P<block>(?!))")
    lines = "|".join(
        filter(None, (signs.line and f"(?:{signs.line})", signs.starting and rf"^[ \t]*(?:{signs.starting})"))
    )
    parts.append(rf"(?P<line>(?:{lines})[^\n]*)" if lines else r"(?P<line>(?!))")
    return re.compile("|".join(parts), re.MULTILINE)


@cache
def _compile_edges(name: str, *, first: bool) -> re.Pattern[str]:
    """Compile the pattern for the comment markers before and after the text of a line."""
    signs = _SIGNS[name]
    begins: Sequence[str] = [begin for begin, _ in signs.blocks] if first else [r"\*+(?!/)"]
    begins = [*begins, *filter(None, (signs.line, signs.starting))] if first else begins
    ends = [end for _, end in signs.blocks]
    return re.compile(rf"\A\s*(?:{'|'.join(begins) or '(?!)'})|(?:{'|'.join(ends) or '(?!)'})\s*\Z")


@dataclass(frozen=True, slots=True)
class CommentTrigger:
    """A comment with an instruction. `mark` is `!` for a change or `?` for an answer. Lines are numbered from 0."""

    text: str
    mark: str
    first: int
    last: int


def has_definition(document: Document, line: int) -> bool:
    return _is_definition(document.get_line(line), typed=document.language_id in _TYPED_LANGUAGES)


def _find_heads_upwards(lines: Sequence[str], line: int, *, typed: bool) -> Iterator[int]:
    """Yield the lines on which the definitions around a line begin, innermost first."""
    depth: int | None = None
    for number in range(min(line, len(lines) - 1), max(-1, line - _MAX_LINES_UPWARDS), -1):
        text = _get_beginning(lines, number)
        indent = len(text) - len(text.lstrip())
        if not text or (depth is not None and indent >= depth):
            continue
        if _is_definition(text, typed=typed):
            yield number
        # A line that begins or closes a block is indented like the block's definition, and belongs to it.
        is_part = _BLOCK_BEGIN.match(text) or (number == line and _BLOCK_END.match(text))
        depth = indent + 1 if is_part else indent


def _get_beginning(lines: Sequence[str], number: int) -> str:
    """Return the beginning of a line, because a line may be a megabyte long."""
    return lines[number][:_MAX_HEAD_LENGTH].rstrip()


@dataclass(frozen=True, slots=True)
class EditSubject:
    """The lines that an edit at a cursor works on, numbered from 0. `name` is empty if they are not a definition."""

    first: int
    last: int
    name: str = ""

    def to_range(self, document: Document) -> Range:
        """Return the range from the beginning of the first line to the end of the last line."""
        end = count_units(document.get_line(self.last), document.encoding)
        return Range(Position(self.first, 0), Position(self.last, end))


def find_edit_subject(document: Document, line: int) -> EditSubject:
    """Return the innermost definition that contains a line, with its decorators, or else the line itself."""
    lines = document.lines
    line = min(line, len(lines) - 1)
    # A blank line belongs to a definition if the code below it does. A decorator belongs to the definition below it.
    near = range(line, min(line + _MAX_LINES_UPWARDS, len(lines)))
    start = next((at for at in near if lines[at].strip() and not _is_decorator(lines, at)), -1)
    for head in _find_heads_upwards(lines, start, typed=document.language_id in _TYPED_LANGUAGES):
        above = range(head, max(0, head - _MAX_DECORATORS), -1)
        first = next((at for at in above if not _is_decorator(lines, at - 1)), above.stop)
        if first <= line:
            name = _extract_definition_name(_get_beginning(lines, head)) or ""
            return EditSubject(first, _find_block_end(lines, head), name)
    return EditSubject(line, line)


def _is_decorator(lines: Sequence[str], number: int) -> bool:
    return 0 <= number < len(lines) and _DECORATOR.match(lines[number]) is not None


def _find_block_end(lines: Sequence[str], head: int) -> int:
    """Return the last line of the block that begins at `head`: deeper lines, and the line that closes the block."""
    indent = len(_extract_indent(lines[head]))
    last = head
    for number in range(head + 1, min(head + _MAX_LINES_DOWNWARDS, len(lines))):
        text = _get_beginning(lines, number)
        depth = len(_extract_indent(text))
        if text and (depth > indent or _BLOCK_BEGIN.match(text)):
            last = number
        elif text:
            return number if depth == indent and _BLOCK_END.match(text) else last
    return last


def _is_definition(text: str, *, typed: bool) -> bool:
    if _DEFINITION.match(text) or _ARROW.match(text) or _BARE_FUNCTION.match(text):
        return True
    return typed and _TYPED_FUNCTION.match(text) is not None


def _extract_definition_name(text: str) -> str | None:
    for match in _NAME.finditer(text):
        if match["name"] not in _KEYWORDS:
            called = match["sign"] == "(" and not _CLASS.search(text[: match.start()])
            return f"{match['name']}()" if called else match["name"]
    return None


def find_comment_trigger(document: Document, line: int) -> CommentTrigger | None:
    """Return the instruction comment at a line, which is marked with `AI!` or `AI?`. Return None if there is none."""
    near = document.lines[max(0, line - _NEAR) : line + _NEAR] if 0 <= line < document.line_count else ()
    if not any(_MARK.search(text) for text in near):
        return None
    start, text = _extract_text_around(document, line)
    triggers = _find_triggers(start, find_comments(text, document.language_id, max(0, line - _NEAR - start)))
    return next((trigger for trigger in triggers if trigger.first <= line <= trigger.last), None)


def _extract_text_around(document: Document, line: int) -> tuple[int, str]:
    """Return part of the text around a line, and the number of the first line in that part.

    The part begins far above the line, because the preceding text determines whether a comment mark is in a string.
    """
    lines, stop = document.lines, min(line + _NEAR, document.line_count)
    first, budget, many = stop, _LOOKED_THROUGH, _AT_ONCE
    while first and many:
        size = sum(map(len, lines[max(0, first - many) : first]))
        if size <= budget:
            first, budget = max(0, first - many), budget - size
        else:
            many //= 2
    text = _ENDS.sub("\n", "".join(lines[first:stop]))
    return first, text if stop == document.line_count else text[:-1]


def _find_triggers(start: int, comments_around: Iterable[Comment]) -> Iterator[CommentTrigger]:
    run: list[tuple[int, str]] = []
    for comment in comments_around:
        lines = [(start + number, words) for number, words in enumerate(comment.lines, comment.first)]
        # Treat comments on consecutive lines without code as a single text.
        if not comment.is_alone or comment.is_block or not run or run[-1][0] + 1 != lines[0][0]:
            yield from _split_marked_lines(run)
            run = []
        run += lines
        if not comment.is_alone or comment.is_block:
            yield from _split_marked_lines(run)
            run = []
    yield from _split_marked_lines(run)


def _split_marked_lines(run: Sequence[tuple[int, str]]) -> Iterator[CommentTrigger]:
    """Yield a comment's instructions. Each one ends at its mark, or extends from its mark to an empty line."""
    text_lines: list[tuple[int, str]] = []
    mark = ""
    for number, text in (*run, (-1, "")):
        first, last = _MARK_FIRST.match(text), _MARK_LAST.search(text)
        if last is not None and (text_lines or first is None):
            yield from _build_trigger([*text_lines, (number, text[: last.start()])], mark or last["mark"])
            text_lines, mark = [], ""
        elif first is not None or not text:
            yield from _build_trigger(text_lines, mark)
            text_lines, mark = ([], "") if first is None else ([(number, first["text"])], first["mark"])
        else:
            text_lines.append((number, text))


def _build_trigger(lines: Sequence[tuple[int, str]], mark: str) -> Iterator[CommentTrigger]:
    words = "\n".join(text.strip() for _, text in lines).strip()
    if mark and words:
        yield CommentTrigger(words, mark, lines[0][0], lines[-1][0])


def is_unfinished(document: Document, first: int, last: int | None = None) -> bool:
    """Return whether a line has a TODO or an empty statement, or is in a definition with an empty body.

    `last` defaults to `first`.
    """
    count = document.line_count
    if not 0 <= first < count:
        return False
    lines = range(first, min(max(first, last or 0), first + _SELECTED, count - 1) + 1)
    for text in map(document.get_line, lines):
        if _TODO.search(text) or _EMPTY.fullmatch(text):
            return True
    return any(_is_in_empty_definition(document, number) for number in lines[:_MAX_BODY_LINES])


def _is_in_empty_definition(document: Document, number: int) -> bool:
    subject = find_edit_subject(document, number)
    body = document.lines[subject.first : subject.last + 1]
    if number > subject.last or len(body) > _MAX_BODY_LINES or sum(map(len, body)) > _MAX_BODY_CHARACTERS:
        return False
    text = _ENDS.sub("\n", "".join(body))
    return bool(subject.name) and bool(_EMPTY_BODY.search(mask_comments_and_strings(text, document.language_id)))


def _extract_indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" \t"))]
