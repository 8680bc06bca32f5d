"""Changes to source text that its grammar would misread. They keep the position of every other byte."""

from __future__ import annotations

import re

# Python's grammar ends a statement at a dot at the end of a line, even inside brackets.
_DOT_AT_END = re.compile(rb"^([^#\n]*[^\W\d]\w*[ \t]*\.[ \t]*\r?)\n", re.MULTILINE)
# Macros around the name of a type, as in `class MYLIB_API Foo MYLIB_FINAL {`, which the grammars of C and C++ read as a
# function. A body of values alone, as in `struct POINT p{1, 2}`, begins a variable.
_TYPE_WITH_MACROS = re.compile(
    rb"\b((enum\s+)(?:(?:class|struct)\s+)?|(?:class|struct|union)\s+)"
    rb"((?:\w++\([^()\n]{0,200}\)\s*|[A-Z_][A-Z0-9_]*+\s+){0,4})(?!final\b)"
    rb"([A-Za-z_][\w:]*+(?:<[^;{}\n]{0,200}>)?(?:\s+final\b)?\s*)([A-Z][A-Z0-9_]++\s*)?"
    rb"(?=(?::(?!:)[^;{}()]{0,500})?\{(?(2)|(?![^;:{}]+\})))"
)
# The parts of Python source text that decide where a statement ends: comments, strings, brackets, and the beginnings of
# definitions, which cannot be inside brackets.
_PYTHON_PART = re.compile(
    rb"""#[^\n]*|(?P<long>\"{3}|'{3}).*?(?:(?P=long)|\Z)|(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\\n])*(?P<end>(?P=quote))?"""
    rb"""|(?P<opener>[(\[{])|(?P<closer>[)\]}])|^[ \t]*(?P<definition>(?:async[ \t]+)?def|class)[ \t]+\w""",
    re.DOTALL | re.MULTILINE,
)
_PYTHON_DEFINITION = re.compile(rb"^([ \t]*)(?:(?:async[ \t]+)?def|class)[ \t]+\w+[^\n]*[:(,][ \t\r]*$", re.MULTILINE)
_COMPOUND_STATEMENT = re.compile(rb"(?:async|class|def|if|elif|for|while|with|match|case|except)\b")


def remove_macros(data: bytes) -> bytes:
    """Blank out the macros around the names of types in C and C++."""
    return _TYPE_WITH_MACROS.sub(lambda match: match[1] + _blank(match[3]) + match[4] + _blank(match[5] or b""), data)


def end_statements(data: bytes) -> bytes:
    """Blank out strings and brackets that are not closed, so that a statement that is being typed ends where the next
    statement or definition begins. Python's grammar would lose the definitions after it, or nest them wrongly.
    """
    data = _DOT_AT_END.sub(rb"\1 ", data)
    result = bytearray(data)
    openers: list[int] = []
    position = 0
    while (part := _PYTHON_PART.search(data, position)) is not None and part.start() < len(data):
        position = part.end()
        if part["opener"]:
            openers.append(part.start())
        elif part["closer"]:
            del openers[-1:]
        elif (part["long"] and _contains_outer_definition(data, part)) or (part["quote"] and not part["end"]):
            position = data.find(b"\n", part.start()) % (len(data) + 1)
            result[part.start() : position] = _blank(data[part.start() : position])
        elif part["definition"] and openers:
            _replace_statement(result, openers[0], part.start())
            openers.clear()
    if openers:
        _replace_statement(result, openers[0], len(data))
    return bytes(result)


def _contains_outer_definition(data: bytes, string: re.Match[bytes]) -> bool:
    """Return True if a string contains a definition that is less indented than the line on which the string begins."""
    indentation = _measure_indentation(data, string.start())
    definitions = (part for part in _PYTHON_DEFINITION.finditer(string[0]) if part.start())
    return any(len(part[1]) < indentation for part in definitions)


def _replace_statement(data: bytearray, opener: int, end: int) -> None:
    """Replace the statement of an opening bracket, up to its last continuation line, but not beyond `end`.

    The replacement is a statement without brackets that can contain the definition at `end`, if that is indented.
    """
    indentation = _measure_indentation(data, opener)
    start = data.rfind(b"\n", 0, opener) + 1 + indentation
    lines = rb"[^\n]*(?:\n(?:[ \t]*\r?$|[ \t]{%d}[^\n]*|[ \t]*[)\]}][^\n]*))*" % (indentation + 1)
    statement = re.compile(lines, re.MULTILINE).match(data, start, end)
    if statement is None:
        return
    head = bytes(data[start:opener]) + b":" if data.startswith(b"class", start) else b"if 0:"
    has_body = _measure_indentation(data, end) > indentation and _COMPOUND_STATEMENT.match(data, start)
    if not has_body or len(head) > len(statement[0].partition(b"\n")[0]):
        head = b"0"
    data[start : statement.end()] = head + _blank(statement[0])[len(head) :]


def _measure_indentation(data: bytes | bytearray, position: int) -> int:
    """Return the number of blanks at the beginning of the line that contains `position`."""
    end = line = data.rfind(b"\n", 0, position) + 1
    while data[end : end + 1] in (b" ", b"\t"):
        end += 1
    return end - line


def _blank(data: bytes) -> bytes:
    """Replace all characters except line endings with spaces."""
    return re.sub(rb"[^\r\n]", b" ", data)
