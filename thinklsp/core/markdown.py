"""The code fences and the front matter of Markdown texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from thinklsp.core.errors import ThinkLspError

# The line of a list item, or of an item inside an item, may begin with a fence. Backticks that are followed by more
# backticks on the same line mark inline code and do not open a fence.
_OPENS = re.compile(
    r"(?:(?P<item>(?: {0,3}(?:[-+*]|\d{1,9}[.)])(?: {1,4}|\t))+)| {0,3})(?P<mark>`{3,}(?=[^`]*\Z)|~{3,})"
)
_CLOSES = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})[ \t]*")


def filter_outside_fences(bodies: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line outside code fences. The lines have no line endings."""
    for number, (body, before, after) in enumerate(track_fences(bodies)):
        if not before and not after:
            yield number, body


def find_open_fence(bodies: Sequence[str]) -> str:
    """Return the mark that closes the code fence still open after the last line, or an empty string if none is open."""
    return next(reversed([after for _, _, after in track_fences(bodies)]), "")


def track_fences(bodies: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each line with two marks: the code fence open before the line and the one open after the line."""
    fence = ""
    for body in bodies:
        before = "" if is_after_item(fence, body) else fence
        fence = update_fence(fence, body)
        yield body, before, fence


def update_fence(fence: str, body: str) -> str:
    """Return the mark of the code fence that is open after a line. `fence` is the mark of the one open before it.

    The mark of a fence in a list item is indented as the text of the item.
    """
    if fence and not is_after_item(fence, body):
        # Few lines contain such a mark, and this look is faster than the pattern.
        mark = fence.lstrip(" ")
        if mark[:3] not in body:
            return fence
        closes = _CLOSES.fullmatch(body.expandtabs(4)[len(fence) - len(mark) :])
        return "" if closes and closes["mark"].startswith(mark) else fence
    if "```" not in body and "~~~" not in body:
        return ""
    if (opens := _OPENS.match(body)) is None:
        return ""
    return " " * len((opens["item"] or "").expandtabs(4)) + opens["mark"]


def is_after_item(fence: str, body: str) -> bool:
    """Return True if a line is behind the list item of a code fence, because it is less indented than the item."""
    indentation = len(fence) - len(fence.lstrip(" "))
    return indentation > 0 and bool(body.strip()) and not body.expandtabs(4).startswith(" " * indentation)


def wrap_in_fence(text: str) -> str:
    """Wrap the text in a code fence that is longer than any fence in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


MAX_FRONT_MATTER_BYTES = 4_096

_FENCE = "---"
_ENDS = frozenset(("---", "..."))
_KEY = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})[ \t]*:(?:[ \t]+|$)")
_BLOCK_HEADER = re.compile(r"([|>])[+-]?(?:[ \t]+#.*)?[ \t]*")
_COMMENT = re.compile(r"(?:^|[ \t])#")
_UNSUPPORTED = tuple("[{&*!%@`")
# The escapes of double quotes are those of JSON.
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(?:#.*)?""", re.DOTALL)


class FrontMatterError(ThinkLspError):
    """The error for front matter that cannot be read. The message is a sentence about the front matter."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The values of the front matter by key, and the text after it."""

    values: Mapping[str, str | None]
    body: str


def parse_front_matter(text: str) -> FrontMatter:
    """Split a text with line feeds into its front matter and its body. Raises FrontMatterError."""
    first, separator, rest = text.partition("\n")
    if first.rstrip() != _FENCE or not separator:
        raise FrontMatterError("It does not begin with front matter between two lines `---`.")
    # The end of front matter at the limit is still found: a line feed, the fence, and the next character.
    head = rest[: MAX_FRONT_MATTER_BYTES + len(_FENCE) + 2]
    lines: list[str] = []
    length = 0
    for line in head.split("\n"):
        if line.rstrip() in _ENDS:
            _check_size("\n".join(lines))
            return FrontMatter(_parse_values(lines), rest[length + len(line) :].lstrip("\n"))
        lines.append(line)
        length += len(line) + 1
    _check_size(head)
    raise FrontMatterError("Its front matter does not end with a line `---`.")


def _check_size(text: str) -> None:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_FRONT_MATTER_BYTES:
        raise FrontMatterError(f"Its front matter is larger than {MAX_FRONT_MATTER_BYTES:,} bytes.")


def _parse_values(lines: list[str]) -> dict[str, str | None]:
    """Parse the lines between the fences."""
    values: dict[str, str | None] = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if _is_blank(line):
            continue
        if (match := _KEY.match(line)) is None:
            # The line with the opening fence counts as line 1.
            raise FrontMatterError(f"Line {number + 1} of the file is not `key: value`.")
        if match[1] in values:
            raise FrontMatterError(f"Its front matter contains `{match[1]}` twice.")
        nested = list(takewhile(_is_nested, lines[number:]))
        number += len(nested)
        values[match[1]] = _parse_value(line[match.end() :].strip(), nested)
    return values


def _is_nested(line: str) -> bool:
    """Return True if a line belongs to the key above: an indented line, a blank line or a list item."""
    return not line.strip() or line.startswith((" ", "\t", "- ")) or line.rstrip() == "-"


def _parse_value(first: str, nested: list[str]) -> str | None:
    if _BLOCK_HEADER.fullmatch(first):
        return _parse_block(nested, folds=first.startswith(">"))
    lines = [first, *(line.strip() for line in nested)]
    # The text that shows the kind of value is beside the key or below it.
    text = _strip_comment(first) or next((line.strip() for line in nested if not _is_blank(line)), "")
    is_quoted, is_below = text.startswith(('"', "'")), not _strip_comment(first)
    if is_below and (text.startswith("- ") or text == "-" or (not is_quoted and _KEY.match(text))):
        return None
    if text.startswith((*_UNSUPPORTED, "|", ">")):
        return None
    if is_quoted:
        return _parse_quoted(_fold(lines).strip())
    return _fold([_strip_comment(line) for line in lines]).strip()


def _is_blank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _strip_comment(text: str) -> str:
    found = _COMMENT.search(text)
    return text if found is None else text[: found.start()].rstrip()


def _fold(lines: list[str]) -> str:
    """Join lines with spaces. A blank line stays a line break."""
    text = ""
    for line in lines:
        if not line:
            text += "\n"
        else:
            text += line if not text or text.endswith("\n") else f" {line}"
    return text


def _parse_block(nested: list[str], *, folds: bool) -> str:
    indent = next((len(line) - len(line.lstrip()) for line in nested if line.strip()), 0)
    if any(line[:indent].strip() for line in nested):
        raise FrontMatterError("A block of its front matter is indented less than its first line.")
    lines = [line[indent:].rstrip() for line in nested]
    return (_fold(lines) if folds else "\n".join(lines)).strip("\n")


def _parse_quoted(text: str) -> str:
    found = _QUOTED.fullmatch(text)
    if found is None:
        raise FrontMatterError(f"A value of its front matter begins with {text[0]} but does not end with it.")
    if text[0] == "'":
        return found[1][1:-1].replace("''", "'")
    try:
        value: str = json.loads(found[1], strict=False)
        # JSON also accepts half of a surrogate pair, which cannot be encoded.
        value.encode()
    except ValueError:
        raise FrontMatterError("A quoted value of its front matter contains an unknown escape.") from None
    return value
