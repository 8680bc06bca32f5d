"""Whether code at a place in a document is unfinished: a TODO, or a body in which nothing stands.

A look at some lines without a grammar, as in `places`. Comments and strings say nothing here.
"""

from __future__ import annotations

import re

from thinklsp.lsp.documents.comments import blanked
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.documents.places import has_definition

# Lines of a selection that are looked at, lines in which a head or a body has room, and characters of all of them.
_SELECTED, _NEAR, _LOOKED_THROUGH = 200, 60, 20_000
_LONGEST_HEAD = 500

_TODO = re.compile(r"\b(?:TODO|FIXME)\b")
_NOTHING = r"(?:pass|\.\.\.|raise NotImplementedError(?:\(.*\))?|todo!\(.*\);?|unimplemented!\(.*\);?)"
_EMPTY = re.compile(rf"\s*{_NOTHING}\s*")
_EMPTY_BRACES = re.compile(rf"\{{\s*{_NOTHING}?\s*\}}[;,)]*[ \t]*$", re.MULTILINE)
_EMPTY_INLINE = re.compile(rf"[ \t]*{_NOTHING}[ \t]*$", re.MULTILINE)
_REST_BLANK = re.compile(r"[ \t]*$", re.MULTILINE)
_END = re.compile(r"\s*\n([ \t]*)end\b")
_SIGN = re.compile(r"[()\[\]{:;\n]")
# How a line ends, or the next one begins, where the head of a definition goes on.
_OPEN_END = re.compile(r"(?:[,\\]|=>|->|\bwhere)[ \t]*\Z")
_GOES_ON = re.compile(r"\s*(?:[{:]|=>|->|(?:where|throws|extends|implements|permits|noexcept|requires)\b)")


def is_unfinished(document: Document, first: int, last: int | None = None) -> bool:
    """A TODO or an empty statement on one of these lines, or one of them in a definition whose body is empty. `last`:
    `first` where it is left out."""
    count = document.line_count
    if not 0 <= first < count:
        return False
    last = min(max(first, last or 0), first + _SELECTED, count - 1)
    lines = range(first, last + 1)
    for text in map(document.line, lines):
        if _TODO.search(text) or _EMPTY.fullmatch(text):
            return True
    above = range(first, max(-1, first - _NEAR), -1)
    start = next((number for number in above if _is_head(document, number)), first)
    code = _Code(document, start, min(last + _NEAR, count))
    if any(_EMPTY.fullmatch(code.line(number)) for number in lines):
        return True
    heads = [start, *lines] if start < first else lines
    ends = (code.end_of_empty_body(number) for number in heads if _is_head(document, number))
    return any(end is not None and first <= end for end in ends)


def _is_head(document: Document, line: int) -> bool:
    return len(document.line(line)) <= _LONGEST_HEAD and has_definition(document, line)


class _Code:
    """Lines of a document, the first of which begins outside of comments and strings. They have their numbers in the
    document."""

    def __init__(self, document: Document, start: int, stop: int) -> None:
        self._start = start
        self._raw: list[str] = []
        left = _LOOKED_THROUGH
        for number in range(start, stop):
            line = document.line(number)
            if (left := left - len(line) - 1) < 0:
                break
            self._raw.append(line)
        self._lines = blanked("\n".join(self._raw), document.language_id).split("\n")

    def line(self, number: int) -> str:
        index = number - self._start
        return self._lines[index] if index < len(self._lines) else ""

    def end_of_empty_body(self, head: int) -> int | None:
        """The last line of the definition whose head begins here; None where something stands in its body, or where it
        has none."""
        first = head - self._start
        text = "\n".join(self._lines[first : first + _NEAR])
        depth = 0
        for found in _SIGN.finditer(text):
            sign, at = found[0], found.start()
            if sign in "([":
                depth += 1
            elif sign in ")]":
                depth -= 1
            elif depth > 0:
                continue
            elif sign == "{":
                if (body := _EMPTY_BRACES.match(text, at)) is not None:
                    return head + text.count("\n", 0, body.end())
                # A type, as in `interface{}`, stands before the body.
                if not text.startswith("{}", at):
                    return None
            elif sign == ":":
                line = head + text.count("\n", 0, at)
                if _EMPTY_INLINE.match(text, at + 1):
                    return line
                if _REST_BLANK.match(text, at + 1):
                    return self._end_of_empty_block(head, line)
            elif sign == ";":
                return None
            elif (end := _END.match(text, at)) is not None and end[1] == _indent(text):
                return head + text.count("\n", 0, end.end())
            elif not (_OPEN_END.search(text, text.rfind("\n", 0, at) + 1, at) or _GOES_ON.match(text, at)):
                return None
        return None

    def _end_of_empty_block(self, head: int, line: int) -> int | None:
        """Of a body that is told by its indentation and begins below `line`."""
        outside = len(_indent(self.line(head)))
        end, said = line, ""
        for number in range(line + 1, self._start + len(self._lines)):
            text, raw = self.line(number), self._raw[number - self._start]
            # The lines of a text may begin anywhere.
            statement = text.strip(' \t"')
            if statement and len(_indent(text)) <= outside:
                break
            said += statement and f"{text}\n"
            if said and _EMPTY.fullmatch(said) is None:
                return None
            if text.strip() or (raw.strip() and len(_indent(raw)) > outside):
                end = number
        return end


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" \t"))]
