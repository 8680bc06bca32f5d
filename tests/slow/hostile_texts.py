"""Texts that kept parsers, matchers and Markdown readers busy or took too much memory.

Every source defines or names `victim`, so that a search for its definition reads them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

SIZE = 300_000


@dataclass(frozen=True)
class Syntax:
    """The syntax of a language: a definition of `{}`, an opening of a scope, and other openings."""

    extension: str
    definition: str
    scope: str
    opening: str
    quote: str = '"'
    comment: str = "/*"


SYNTAX: Mapping[str, Syntax] = {
    "python": Syntax("py", "def {}(): pass\n", "class A: ", "lambda: (", comment="#"),
    "javascript": Syntax("js", "function {}() {{}}\n", "class A { m() {", "${", "`"),
    "typescript": Syntax("ts", "function {}(): void {{}}\n", "namespace A {", "Array<", "`"),
    "tsx": Syntax("tsx", "const {} = () => <a/>;\n", "class A { m() {", "<a b={", "`"),
    "go": Syntax("go", "func {}() {{}}\n", "func A() { x := func() {", "func("),
    "rust": Syntax("rs", "fn {}() {{}}\n", "mod a {", "Vec<", 'r#"'),
    "java": Syntax("java", "class {} {{}}\n", "class A { void m() {", "List<"),
    "cpp": Syntax("cpp", "void {}() {{}}\n", "namespace a {", "a<"),
    "c": Syntax("c", "void {}(void) {{}}\n", "struct a {", "(*"),
    "ruby": Syntax("rb", "def {}; end\n", "class A\n", '"#{', comment="=begin\n"),
    "php": Syntax("php", "function {}() {{}}\n", "class A { function m() {", "function("),
    "csharp": Syntax("cs", "class {} {{}}\n", "namespace A {", "List<"),
    "lua": Syntax("lua", "function {}() end\n", "function a() ", "function(", "[[", "--[["),
    "bash": Syntax("sh", "{}() {{ :; }}\n", "a() {", "$(", comment="<<A\n"),
}


def repeated(piece: str, size: int = SIZE) -> str:
    return piece * (size // len(piece))


SHAPES: Mapping[str, Callable[[Syntax], str]] = {
    "round brackets": lambda _: repeated("("),
    "braces": lambda _: repeated("{"),
    "pairs": lambda _: repeated("(", SIZE // 2) + repeated(")", SIZE // 2),
    "openings": lambda s: repeated(s.opening),
    "scopes": lambda s: repeated(s.scope),
    "one line": lambda s: repeated(s.definition.format("victim").replace("\n", ";")),
    "one name": lambda s: s.definition.format("a" * SIZE),
    "definitions": lambda s: "".join(s.definition.format(f"victim{n}") for n in range(SIZE // 20)),
    "quotes": lambda s: repeated(f"{s.quote}a "),
    "comments": lambda s: repeated(s.comment),
}


def hostile_source(language: str, shape: str) -> str:
    syntax = SYNTAX[language]
    head = "<?php\n" if language == "php" else ""
    return f"{head}victim\n{SHAPES[shape](syntax)}\nvictim\n"


NAMES = ("a" * 240, "a" * 239 + "b", "a" * 120)

IGNORE_FILES: Mapping[str, str] = {
    "numbered stars": "".join(f"*a*a*a{n}\n" for n in range(22_000)),
    "stars at the end": "".join(f"a*a*{n}*a*\n" for n in range(18_000)),
    "folders": "**/a/**/b/**/c/**/d\n" * 10_000,
    "sets": "".join(f"*[ab]*[!c]{n}\n" for n in range(14_000)),
    "open sets": "[" * 250_000,
    "one long line": "*a" * 125_000,
}

LINES = "".join(f"    value_{n % 7} = {n % 10}\n" for n in range(50_000))


@dataclass(frozen=True)
class Edit:
    text: str
    old: str
    new: str = "x"
    replace_all: bool = False


EDITS: Mapping[str, Edit] = {
    "overlapping itself": Edit("a" * 400_000, "a" * 200_000, "b", replace_all=True),
    "overlapping itself once": Edit("a" * 400_000, "a" * 200_000),
    "lines that are missing": Edit(LINES, LINES[: len(LINES) // 2].replace("value_6 = 9", "value_6 = x")),
    "other white space": Edit(LINES, LINES[: len(LINES) // 2].replace("    ", "\t")),
    "almost everywhere": Edit("ab" * 300_000, "ab" * 100_000 + "b"),
    "gigabytes": Edit("a" * 1_000_000, "a", "b" * 3_000, replace_all=True),
    "words of one line": Edit("word " * 150_000, " ".join(f"w{n}" for n in range(50_000))),
    "blanks": Edit(" " * 500_000, " " * 100_000 + "\t"),
}

LINES_TO_SEARCH: Mapping[str, str] = {
    "one line": repeated("a ", 4_000_000),
    "lone returns": repeated("a\r", 4_000_000),
    "one line that is no text": repeated("a\x01", 4_000_000),
}

ANSWERS: Mapping[str, str] = {
    "nested lists": repeated("- a\n  - b\n    - c\n", 700_000) + "<x y>",
    "images": repeated("![a](https://e)\n", 900_000),
    "tables": "| a |\n| - |\n" + repeated("| a | b |\n", 700_000) + "<x y>",
    "fences": repeated("- ```\n## You\n", 700_000),
}

DOCUMENT_OF_HEADINGS = repeated("## You\n", 400_000) + "\nHello.\n"
