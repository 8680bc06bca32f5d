"""A search for comments in a document, without a full parser.

Each language has patterns for its comment markers and its strings. Markers inside strings are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache


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


_DOUBLE, _SINGLE = r'"(?:\\.|[^"\\\n])*"', r"'(?:\\.|[^'\\\n])*'"
# A quote before a name, as in Rust's lifetime `'a`, does not begin a string in languages with character literals.
_CHARACTER = r"'(?:\\[^'\n]*|[^'\\\n])'"
_TRIPLE = (r'(?s:"""(?:\\.|[^\\])*?""")', r"(?s:'''(?:\\.|[^\\])*?''')")
_BACKTICK = r"(?s:`(?:\\.|[^`\\])*`)"
_HASH, _SLASHES, _DASHES = r"(?<!\S)\#+", r"(?<!:)//+", r"--+"
_C_BLOCK = (r"/\*+!?", r"\*+/")
_HTML = (r"<!--+", r"--+>")

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
    "ada": _Signs(_DASHES, strings=(_DOUBLE, _CHARACTER)),
    "lisp": _Signs(r";+", ((r"\#\|", r"\|\#"),), (r'(?s:"(?:\\.|[^"\\])*")',)),
    "ini": _Signs(starting=r"[;\#]+"),
    "assembly": _Signs(rf";+|{_SLASHES}|{_HASH}", (_C_BLOCK,), (_DOUBLE, _CHARACTER)),
    "percent": _Signs(r"(?<!\\)%+", strings=(_DOUBLE,)),
    "latex": _Signs(r"(?<!\\)%+"),
    "html": _Signs("", (_HTML,)),
    "script in html": _Signs(_SLASHES, (_C_BLOCK, _HTML), (_BACKTICK, _DOUBLE, _SINGLE)),
    "basic": _Signs(r"'+", strings=(r'"[^"\n]*"',), starting=r"REM\b"),
    "vim": _Signs(starting=r'"+'),
    "ocaml": _Signs(blocks=((r"\(\*+", r"\*+\)"),), strings=(_DOUBLE, _CHARACTER)),
    "pascal": _Signs(_SLASHES, ((r"\(\*+", r"\*+\)"), (r"\{", r"\}")), (_SINGLE,)),
    "fsharp": _Signs(_SLASHES, ((r"\(\*+", r"\*+\)"),), (_TRIPLE[0], _DOUBLE, _CHARACTER)),
    "fortran": _Signs(r"!+", strings=(_DOUBLE, _SINGLE)),
    "batch": _Signs(starting=r"(?:@?REM\b|::)"),
    "powershell": _Signs(_HASH, ((r"<\#", r"\#>"),), (_DOUBLE, r"'[^'\n]*'")),
    # The markers for unknown languages. Ambiguous markers are recognized only at the beginning of a line.
    "": _Signs(
        rf"{_HASH}|(?<!\S)//+", (_C_BLOCK, _HTML), (_DOUBLE, _SINGLE), starting=r"""--+|;+|%+|"+|\*+(?!/)|REM\b"""
    ),
}  # fmt: skip

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
    "sql": "sql mysql plsql pgsql postgres sqlite",
    "lua": "lua luau",
    "haskell": "haskell lhaskell elm purescript idris agda",
    "ada": "ada vhdl",
    "lisp": "lisp commonlisp common-lisp clojure scheme racket emacs-lisp elisp fennel janet",
    "ini": "ini editorconfig systemd",
    "assembly": "asm assembly nasm gas llvm wat",
    "percent": "erlang prolog matlab octave postscript",
    "latex": "latex tex bibtex plaintex",
    "html": "html xml xsl svg markdown markdown_inline mdx quarto rmd htmldjango",
    "script in html": "vue svelte astro",
    "basic": "vb vba vbscript basic freebasic aspvbscript visualbasic",
    "vim": "vim viml vimscript",
    "ocaml": "ocaml sml coq",
    "pascal": "pascal delphi objectpascal",
    "fsharp": "fsharp",
    "fortran": "fortran fortran-modern fortran90 fortran_fixed-form",
    "batch": "bat batch dosbatch",
    "powershell": "powershell ps1",
}
_CHARACTERS = re.compile(r"[^\n]")
_SIGNS_BY_LANGUAGE = {language: signs for signs, languages in _LANGUAGES.items() for language in languages.split()}


def find_comments(text: str, language_id: str, since: int = 0) -> Iterator[Comment]:
    """Yield the comments that end on line `since` or later.

    `language_id` is the editor's name for the language. An unknown language gets the most common markers.
    """
    signs = _SIGNS_BY_LANGUAGE.get(language_id.casefold(), "")
    first_offset = _find_offset(text, since)
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


def _find_offset(text: str, line: int) -> int:
    return len(text) - len(text.split("\n", line)[-1])


@cache
def _compile_tokens(name: str) -> re.Pattern[str]:
    """Compile the pattern for comments and strings. Strings are matched so that markers inside them are ignored."""
    signs = _SIGNS[name]
    parts = [f"(?P<string>{'|'.join(signs.strings)})"] if signs.strings else []
    blocks = "|".join(rf"{begin}.*?(?:{end}|\Z)" for begin, end in signs.blocks)
    parts.append(f"(?P<block>(?s:{blocks}))" if blocks else r"(?P<block>(?!))")
    lines = "|".join(filter(None, (signs.line and f"(?:{signs.line})", signs.starting and rf"^[ \t]*{signs.starting}")))
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
