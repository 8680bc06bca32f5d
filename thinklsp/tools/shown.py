"""Text on its way to the model, or to the user in a line: bounded, and with nothing in it that an eye would not see."""

from __future__ import annotations

import json
import re
import unicodedata

RESULT_LIMIT = 50_000
"""Characters of one tool result."""

# Code points that take no room on a screen although Unicode files them under letters, marks or symbols.
_BLANK = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2028\u2029\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U0001d159\U000e0000-\U000e0fff"
)
_SUSPECT = re.compile(rf"[^\n\t -~\u00a1-\u00ac\u00ae-\u02ff\u0370-\u058f\u3040-\u30ff\u4e00-\u9fff]|[{_BLANK}]")
_HIDDEN_BLANK = re.compile(f"[{_BLANK}]")
_SHOWN = re.compile(r"<U\+([0-9A-F]{4,6})>")
_ZERO_WIDTH_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"


def visible(text: str) -> str:
    """Control and invisible characters as ``<U+202E>``; tabs, line feeds and the joiners inside emoji stay."""
    return _SUSPECT.sub(lambda match: _escape(match, text), text)


def invisible(text: str) -> tuple[str, ...]:
    """The characters that `visible` would spell out, each once, as it spells them."""
    return tuple(dict.fromkeys(f"<U+{code}>" for code in _SHOWN.findall(visible(_SHOWN.sub("", text)))))


def hidden_count(text: str) -> int:
    """Return how many characters `visible` would spell out."""
    return len(_SHOWN.findall(visible(_SHOWN.sub("", text))))


def one_line(text: str) -> str:
    """A title or a button: visible, on one line."""
    return visible(" ".join(text.split()))


def unescaped(text: str) -> str:
    """The inverse: what a model copied from a result, as it stands in the file."""
    return _SHOWN.sub(lambda match: chr(min(int(match[1], 16), 0x10FFFF)), text)


def told(text: str) -> str:
    """A sentence for a message or a progress line. Some editors make a link of `[words](command:…)` even there."""
    return visible(text.replace("\r\n", "\n")).replace("](", "] (")


def bounded(text: str, limit: int = RESULT_LIMIT) -> str:
    """At most `limit` characters, the note included."""
    if len(text) <= limit:
        return text
    note = f"\n[cut: {len(text)} characters, of which this is the beginning]"
    return text[: limit - len(note)] + note


def shown_name(path: str) -> str:
    """A path on a line of its own: names with anything unusual in them are quoted as JSON."""
    return path if path.isprintable() and not set(path) & {'"', "\\"} and path == path.strip() else json.dumps(path)


def _escape(match: re.Match[str], text: str) -> str:
    char = match[0]
    if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn") and not _HIDDEN_BLANK.match(char):
        return char
    if char in (_ZERO_WIDTH_JOINER, _EMOJI_STYLE) and _within_emoji(text, match.start()):
        return char
    return f"<U+{ord(char):04X}>"


def _within_emoji(text: str, at: int) -> bool:
    """A joiner stands between two pictures, a style sign directly behind one."""
    before = text[at - 1 : at]
    if text[at] == _EMOJI_STYLE:
        return _is_picture(before)
    if before == _EMOJI_STYLE:
        before = text[at - 2 : at - 1]
    return _is_picture(before) and _is_picture(text[at + 1 : at + 2])


def _is_picture(char: str) -> bool:
    return char > "\xff" and (unicodedata.category(char) in ("So", "Sk") or char in "\u2194\u2195")
