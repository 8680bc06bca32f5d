"""The comments of a document, as far as they can be told from strings without a parser: for each language the signs
that begin and end a comment, and the quotes that hide them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Comment:
    """`lines`: its text by line, without signs; the first stands on line `first` of the text. `alone`: nothing stands
    before it on its line."""

    first: int
    lines: tuple[str, ...]
    alone: bool
    block: bool


@dataclass(frozen=True, slots=True)
class _Signs:
    """`line`, `blocks`, `strings`: patterns. `starting`: signs that are operators or quotes elsewhere, so that they
    count only at the beginning of a line."""

    line: str = ""
    blocks: tuple[tuple[str, str], ...] = ()
    strings: tuple[str, ...] = ()
    starting: str = ""


_DOUBLE, _SINGLE = r'"(?:\\.|[^"\\\n])*"', r"'(?:\\.|[^'\\\n])*'"
# A quote before a name is no beginning of a string where characters are quoted so: `'a` names a lifetime.
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
    # Nobody said what it is: signs that hardly mean anything else, and the rest where a line begins.
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
_SIGNS_OF = {language: signs for signs, languages in _LANGUAGES.items() for language in languages.split()}


def comments(text: str, language_id: str, since: int = 0) -> Iterator[Comment]:
    """Those that end on line `since` or later. `language_id` as editors name it; one that is not known gets the signs
    that most languages share."""
    signs = _SIGNS_OF.get(language_id.casefold(), "")
    wanted = _offset_of(text, since)
    number, counted = since, wanted
    for match in _tokens(signs).finditer(text):
        if match.end() < wanted or match.lastgroup == "string":
            continue
        start = match.start()
        number += text.count("\n", counted, start) if start >= counted else -text.count("\n", start, counted)
        counted = start
        begin = text.rfind("\n", 0, start) + 1
        lines = match[0].split("\n")
        yield Comment(
            number,
            tuple(_edges(signs, first=index == 0).sub("", line).strip() for index, line in enumerate(lines)),
            alone=not text[begin:start].strip(),
            block=match.lastgroup == "block",
        )


def blanked(text: str, language_id: str) -> str:
    """Without what comments and strings say: spaces in the place of comments, quotes in that of strings. Each line
    stays where it is."""
    signs = _SIGNS_OF.get(language_id.casefold(), "")
    return _tokens(signs).sub(lambda found: _CHARACTERS.sub(_blank(found), found[0]), text)


def _blank(found: re.Match[str]) -> str:
    return '"' if found.lastgroup == "string" else " "


def _offset_of(text: str, line: int) -> int:
    return len(text) - len(text.split("\n", line)[-1])


@cache
def _tokens(name: str) -> re.Pattern[str]:
    """What is a comment, and what only looks like one: strings. The earliest in the text counts."""
    signs = _SIGNS[name]
    parts = [f"(?P<string>{'|'.join(signs.strings)})"] if signs.strings else []
    blocks = "|".join(rf"{begin}.*?(?:{end}|\Z)" for begin, end in signs.blocks)
    parts.append(f"(?P<block>(?s:{blocks}))" if blocks else r"(?P<block>(?!))")
    lines = "|".join(filter(None, (signs.line and f"(?:{signs.line})", signs.starting and rf"^[ \t]*{signs.starting}")))
    parts.append(rf"(?P<line>(?:{lines})[^\n]*)" if lines else r"(?P<line>(?!))")
    return re.compile("|".join(parts), re.MULTILINE)


@cache
def _edges(name: str, *, first: bool) -> re.Pattern[str]:
    """The signs before and behind the words of a line."""
    signs = _SIGNS[name]
    begins: Sequence[str] = [begin for begin, _ in signs.blocks] if first else [r"\*+(?!/)"]
    begins = [*begins, *filter(None, (signs.line, signs.starting))] if first else begins
    ends = [end for _, end in signs.blocks]
    return re.compile(rf"\A\s*(?:{'|'.join(begins) or '(?!)'})|(?:{'|'.join(ends) or '(?!)'})\s*\Z")
