"""Outlines of source text, which contain the definitions with their lines and nesting.

Parsers and queries are native code that holds the interpreter lock, and some queries take minutes. The server therefore
calls `build_outline_rows`, `find_definition_rows` and `find_mention_lines` in worker processes. Lone carriage returns
are parsed as line feeds, and NUL bytes as spaces, because grammars treat NUL as the end of the text.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import tree_sitter

_SHEBANG = re.compile(
    r"\ufeff?#![ \t]*(?:\S*/)?env(?:[ \t]+-\S+)*[ \t]+(?:\S*/)?([^\s/]+)|\ufeff?#![ \t]*(?:\S*/)?([^\s/]+)"
)
# The maximum number of characters that are searched to distinguish two languages.
_MAX_SEARCHED_CHARACTERS = 50_000


@dataclass(frozen=True, slots=True)
class Language:
    """A language with a grammar.

    `grammar` is the module and the function that returns the grammar, `queries` the files with queries for definitions.
    """

    name: str
    grammar: str
    family: str = ""
    queries: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    indented: bool = False
    contents: tuple[tuple[str, re.Pattern[str]], ...] = ()


def detect_language(path: str, text: str, language_id: str = "") -> Language | None:
    """Return the language of a file, or None if there is no grammar for it.

    `path` is a path or URI that ends with the file name. `language_id` is the id that the editor reports for an open
    document. It is used only if the file name and the text do not determine the language.
    """
    name = path.replace("\\", "/").rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name.lstrip(".") else ""
    for language in load_languages().values():
        if name in language.files or (extension and extension in language.extensions):
            return language
        if any(
            of == extension and pattern.search(text, 0, _MAX_SEARCHED_CHARACTERS) for of, pattern in language.contents
        ):
            return language
    shebang = None if extension else _SHEBANG.match(text, 0, 200)
    program = "" if shebang is None else shebang[1] or shebang[2]
    programs, language_id = {program, re.sub(r"[\d.]+$", "", program)}, language_id.casefold()
    by_program = (each for each in load_languages().values() if programs.intersection(each.interpreters))
    by_id = (each for each in load_languages().values() if language_id in (each.name, *each.ids))
    return next(by_program, None) or next(by_id, None)


@cache
def load_languages() -> Mapping[str, Language]:
    rows = tomllib.loads(files(__package__).joinpath("languages.toml").read_text("utf-8"))
    return {name: _parse_language(name, row) for name, row in rows.items()}


def _parse_language(name: str, row: Mapping[str, Any]) -> Language:
    facts: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    patterns = row.get("contents", {}).items()
    facts["contents"] = tuple((of, re.compile(pattern, re.MULTILINE)) for of, pattern in patterns)
    defaults = {"grammar": f"tree_sitter_{name}:language", "family": name, "queries": (name,)}
    return Language(name, **(defaults | facts))


class GrammarUnavailable(Exception):
    """Raised if the grammar of a language is not installed, cannot be loaded or is too old or new for tree-sitter."""


@cache
def load_grammar(language: Language) -> tree_sitter.Language:
    """Load the grammar of a language. Raises GrammarUnavailable."""
    try:
        import tree_sitter  # noqa: PLC0415 - native code, loaded on first use

        return tree_sitter.Language(resolve_name(language.grammar)())
    except Exception as error:
        raise GrammarUnavailable(language.name) from error


def explain_missing_grammars() -> list[str]:
    """Return a sentence for the user about each grammar that cannot be loaded."""
    packages: dict[str, None] = {}
    for language in load_languages().values():
        try:
            load_grammar(language)
        except GrammarUnavailable:
            packages[language.grammar.partition(":")[0].replace("_", "-")] = None
    return [
        f"The grammar {package} cannot be loaded, so its files have no outline. Install the package `{package}`."
        for package in packages
    ]


# Macros around the name of a type, as in `class MYLIB_API Foo MYLIB_FINAL {`, which the grammars of C and C++ read as a
# function. A body of values alone, as in `struct POINT p{1, 2}`, begins a variable.
_TYPE_WITH_MACROS = re.compile(
    rb"\b((enum\s+)(?:(?:class|struct)\s+)?|(?:class|struct|union)\s+)"
    rb"((?:\w++\([^()\n]{0,200}\)\s*|[A-Z_][A-Z0-9_]*+\s+){0,4})(?!final\b)"
    rb"([A-Za-z_][\w:]*+(?:<[^;{}\n]{0,200}>)?(?:\s+final\b)?\s*)([A-Z][A-Z0-9_]++\s*)?"
    rb"(?=(?::(?!:)[^;{}()]{0,500})?\{(?(2)|(?![^;:{}]+\})))"
)


def remove_macros(data: bytes) -> bytes:
    """Blank out the macros around the names of types in C and C++."""
    return _TYPE_WITH_MACROS.sub(lambda match: match[1] + _blank(match[3]) + match[4] + _blank(match[5] or b""), data)


def _blank(data: bytes) -> bytes:
    """Replace all characters except line endings with spaces."""
    return re.sub(rb"[^\r\n]", b" ", data)


MAX_SYMBOLS = 7_000
"""The maximum number of symbols in a result. A tool result cannot show as many."""
MAX_MENTION_LINES = 50_000
# A syntax node is not code if the name of its type contains one of these words.
_PROSE_TYPES = ("comment", "string", "char_literal", "character", "heredoc", "regex", "text")
# A function directly inside one of these definitions is a method.
_METHOD_CONTAINERS = frozenset({"class", "interface", "struct", "enum", "trait", "impl", "record"})
_MAX_NAME_LENGTH = 200

_LONE_RETURN = re.compile(rb"\r(?!\n)")


# The maximum depth at which the syntax tree is searched. The time of a query grows with the square of the depth, and a
# running query cannot be interrupted.
_MAX_DEPTH = 400


class Symbol(NamedTuple):
    """A definition. `line` is the line with its name. All line numbers start at 1.

    `depth` is the number of enclosing definitions. `container` is the innermost enclosing definition, or the type of a
    method's receiver. It is empty at the top level. Preceding comments and Python decorators are not part of a
    definition. As a tuple, a symbol passes from a worker process as JSON.
    """

    name: str
    kind: str
    line: int
    first_line: int
    last_line: int
    depth: int = 0
    container: str = ""


@dataclass(frozen=True, slots=True)
class _Definition:
    symbol: Symbol
    start: int
    end: int


def build_outline(text: str, language: Language) -> tuple[Symbol, ...]:
    """Return the definitions in source text, ordered by position. Text with syntax errors has an incomplete outline."""
    data = encode_source(text)
    definitions = _extract_definitions(parse_source(data, language).root_node, data, language)
    return tuple(_nest_symbols(sorted(definitions, key=lambda definition: (definition.start, -definition.end))))


def _extract_definitions(root: tree_sitter.Node, data: bytes, language: Language) -> Iterable[_Definition]:
    find_line = _index_lines(data)
    ranks: dict[int, int] = {}
    named: dict[int, _Definition] = {}
    for rank, captures in find_definitions(root, language):
        name, scopes = captures.pop("name")[0], captures.pop("scope", ())
        # Patterns are ordered by priority, so a later pattern does not replace an earlier match for the same name.
        if ranks.get(name.start_byte, rank + 1) <= rank or not (text := _read_name(name, data)):
            continue
        ranks[name.start_byte] = rank
        ((kind, (node, *_)),) = ((kind, nodes) for kind, nodes in captures.items() if not kind.startswith("_"))
        end = _find_end(node) if language.indented else node.end_byte
        first, last = find_line(node.start_byte), find_line(end - 1)
        if kind == "object" and first == last:
            # Skip objects on a single line, which are too small for an outline.
            continue
        container = _read_name(scopes[0], data) if scopes else ""
        symbol = Symbol(text, kind, find_line(name.start_byte), first, last, container=container)
        named[name.start_byte] = _Definition(symbol, node.start_byte, node.end_byte)
    return named.values()


def _read_name(node: tree_sitter.Node, data: bytes) -> str:
    text = data[node.start_byte : node.end_byte].decode("utf-8", "replace")
    return " ".join(text[:_MAX_NAME_LENGTH].split()).strip("\"'`")


def _find_end(node: tree_sitter.Node) -> int:
    """Return the end of a definition without trailing comments, which some grammars include."""
    end = node
    while end.child_count:
        last = next((child for child in reversed(end.children) if not _is_blank(child)), None)
        if last is None:
            break
        end = last
    return end.end_byte


def _is_blank(node: tree_sitter.Node) -> bool:
    return node.is_extra or node.type == "comment" or node.start_byte == node.end_byte


def _nest_symbols(definitions: list[_Definition]) -> Iterator[Symbol]:
    within: list[_Definition] = []
    for each in definitions:
        while within and within[-1].end <= each.start:
            within.pop()
        symbol = each.symbol._replace(depth=len(within))
        if within:
            outer = within[-1].symbol
            if (outer.name, outer.kind, outer.line) == (symbol.name, symbol.kind, symbol.line):
                # Skip the second name in `const f = function f() {}`, which is a single definition.
                continue
            kind = "method" if symbol.kind == "function" and outer.kind in _METHOD_CONTAINERS else symbol.kind
            symbol = symbol._replace(
                kind=kind, container=symbol.container or outer.name,
                first_line=max(symbol.first_line, outer.first_line), last_line=min(symbol.last_line, outer.last_line),
            )  # fmt: skip
        within.append(_Definition(symbol, each.start, each.end))
        yield symbol


def build_outline_rows(text: str, language: str) -> tuple[int, tuple[Symbol, ...]] | None:
    """Return the number of definitions in the text, and the first `MAX_SYMBOLS` definitions.

    Returns None if the grammar of the language is unavailable, like the next two functions.
    """
    try:
        symbols = build_outline(text, load_languages()[language])
    except GrammarUnavailable:
        return None
    return len(symbols), symbols[:MAX_SYMBOLS]


def find_definition_rows(text: str, language: str, name: str, line: int) -> list[Symbol] | None:
    """Return the definitions of a name. Definitions in scopes that enclose `line` come first.

    If `line` is 0, the definitions are ordered by position.
    """
    try:
        symbols = build_outline(text, load_languages()[language])
    except GrammarUnavailable:
        return None
    scopes = {each.name: each.depth for each in symbols if each.first_line <= line <= each.last_line}
    matches = [each for each in symbols if each.name.rpartition("::")[2] == name]
    matches.sort(key=lambda each: -scopes.get(each.container, -1))
    return matches[:MAX_SYMBOLS]


def find_mention_lines(text: str, language: str, name: str) -> list[int] | None:
    """Return the numbers of the first lines that mention a name, starting at 1."""
    try:
        return list(find_mentions(text, load_languages()[language], name))[:MAX_MENTION_LINES]
    except GrammarUnavailable:
        return None


def find_mentions(text: str, language: Language, name: str) -> tuple[int, ...]:
    """Return the numbers of the lines that contain a name in code. Comments and strings are ignored."""
    data = encode_source(text)
    root, find_line = parse_source(data, language).root_node, _index_lines(data)
    lines: dict[int, None] = {}
    for match in _compile_word(name).finditer(data):
        row = find_line(match.start())
        if row not in lines:
            node = root.descendant_for_byte_range(match.start(), match.end())
            if node is None or not any(kind in node.type for kind in _PROSE_TYPES):
                lines[row] = None
    return tuple(lines)


def _compile_word(name: str) -> re.Pattern[bytes]:
    """Compile a UTF-8 pattern that matches `name` only as a whole identifier."""
    sign = rb"[\w$\x80-\xff]"
    return re.compile(b"(?<!%b)%b(?!%b)" % (sign, re.escape(name.encode("utf-8", "replace")), sign))


def _index_lines(data: bytes) -> Callable[[int], int]:
    """Return a function that converts byte offsets to line numbers. The first line is 1."""
    starts = [match.end() for match in re.finditer(b"\n", data)]
    return lambda offset: bisect_right(starts, offset) + 1


def encode_source(text: str) -> bytes:
    """Encode text for the parser, without a byte order mark. Lone surrogates become question marks."""
    data = text.removeprefix("\ufeff").encode("utf-8", "replace").replace(b"\0", b" ")
    return _LONE_RETURN.sub(b"\n", data)


def parse_source(data: bytes, language: Language) -> tree_sitter.Tree:
    """Parse source text. Only the byte offsets in the resulting tree are valid, not its row numbers."""
    from tree_sitter import Parser  # noqa: PLC0415 - native code, loaded on first use

    parser = Parser(load_grammar(language))
    if language.family == "c":
        data = remove_macros(data)
    return parser.parse(data)


def find_definitions(root: tree_sitter.Node, language: Language) -> list[tuple[int, dict[str, list[tree_sitter.Node]]]]:
    """Return all matches of the language's queries below `root`, as pattern numbers with the captured nodes."""
    from tree_sitter import QueryCursor  # noqa: PLC0415 - see above

    cursor = QueryCursor(_load_query(language))
    cursor.set_max_start_depth(_MAX_DEPTH)
    return cursor.matches(root)


@cache
def _load_query(language: Language) -> tree_sitter.Query:
    from tree_sitter import Query  # noqa: PLC0415 - see above

    folder = files(__package__).joinpath("queries")
    texts = (folder.joinpath(f"{name}.scm").read_text("utf-8") for name in language.queries)
    return Query(load_grammar(language), "\n".join(texts))
