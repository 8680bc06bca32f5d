"""Functions that make text safe to display: they limit its length, escape invisible characters and hide secrets."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterable
from urllib.parse import quote

RESULT_LIMIT = 50_000
"""The maximum length of one tool result in characters."""

# Code points without width that Unicode classifies as letters, marks or symbols.
_BLANK = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2028\u2029\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U0001d159\U000e0000-\U000e0fff"
)
_SUSPECT = re.compile(rf"[^\n\t -~\u00a1-\u00ac\u00ae-\u02ff\u0370-\u058f\u3040-\u30ff\u4e00-\u9fff]|[{_BLANK}]")
_HIDDEN_BLANK = re.compile(f"[{_BLANK}]")
_ESCAPED = re.compile(r"<U\+([0-9A-F]{4,6})>")
_CUT_MARK = re.compile(
    r"\[line cut(?:: \d+ characters)?\]|\[cut at the length limit; continue with start_line \d+\]"
    r"|\[cut: \d+ characters; this is the beginning\]|\[truncated: the results of one message are limited to [^\]\n]+\]"
)
# The beginning of an HTML element with attributes, of a comment, or of a URL in angle brackets.
_ELEMENT = re.compile(r"<(?=[A-Za-z][\w-]*[\s/][^<>]*=|[A-Za-z][\w+.-]*:(?!:)|!--)")
# The label of a definition, which makes links of `[label]` elsewhere in the text.
_DEFINITION = re.compile(r"^[ \t>*+\-.\d)]*\[[^\[\]]{1,999}\](?=:)", re.MULTILINE)
_ZERO_WIDTH_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"


def escape_invisible(text: str) -> str:
    """Escape invisible and control characters as ``<U+202E>``, except tabs, line feeds and joiners inside emoji."""
    return _SUSPECT.sub(lambda match: _escape(match, text), text)


def remove_invisible(text: str) -> str:
    """Remove the characters that `escape_invisible` escapes."""
    return _SUSPECT.sub(lambda match: match[0] if _escape(match, text) == match[0] else "", text)


def find_invisible(text: str) -> tuple[str, ...]:
    """Return the distinct characters that `escape_invisible` escapes, in escaped form."""
    return tuple(dict.fromkeys(f"<U+{code}>" for code in _ESCAPED.findall(escape_invisible(_ESCAPED.sub("", text)))))


def count_invisible(text: str) -> int:
    """Count the characters that `escape_invisible` escapes."""
    return len(_ESCAPED.findall(escape_invisible(_ESCAPED.sub("", text))))


def to_one_line(text: str) -> str:
    """Format a title or a button label as one line without invisible characters and Markdown links."""
    return sanitize_message(" ".join(text.split()))


def unescape_invisible(text: str) -> str:
    """Undo `escape_invisible`, because models copy escaped text from tool results."""
    return _ESCAPED.sub(_unescape, text)


def holds_escapes(text: str) -> bool:
    """Return True if the text itself contains the escapes that `escape_invisible` writes."""
    return any(_unescape(match) != match[0] for match in _ESCAPED.finditer(text))


def can_restore(shown: str, text: str) -> bool:
    """Return True if a shown text is the text itself, or if `unescape_invisible` returns the text."""
    return shown == text or (not holds_escapes(text) and unescape_invisible(shown) == text)


def find_cut_mark(text: str) -> str | None:
    """Return the first mark in the text with which a tool result says that something was cut."""
    match = _CUT_MARK.search(text)
    return None if match is None else match[0]


def sanitize_message(text: str) -> str:
    """Escape text so that editors show Markdown links, images and HTML elements in it as text.

    Used for messages, titles, plans and progress lines.

    A blank separates the signs of a link, because a backslash would be visible in editors that show plain text.
    """
    text = _ELEMENT.sub("< ", escape_invisible(text.replace("\r\n", "\n"))).replace("](", "] (")
    return _DEFINITION.sub(r"\g<0> ", text) if "\n" in text else text


def truncate(text: str, limit: int = RESULT_LIMIT) -> str:
    """Truncate text to `limit` characters, including a note about the truncation."""
    if len(text) <= limit:
        return text
    note = f"\n[cut: {len(text)} characters; this is the beginning]"
    return text[: limit - len(note)] + note


def clip_line(line: str, limit: int, note: str = "[line cut]") -> str:
    """Escape a line, truncate it to `limit` characters, and append a note if it was truncated."""
    text = escape_invisible(line[: limit + 1])
    return text if len(text) <= limit else f"{text[:limit]} {note}"


def take_fitting(lines: Iterable[str], room: int) -> tuple[list[str], bool]:
    """Return the first lines that fit into `room` characters, and True if lines are left over."""
    fitting_lines: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return fitting_lines, True
        fitting_lines.append(line)
    return fitting_lines, False


def format_path(path: str) -> str:
    """Format a path for a line of its own. Paths with unusual characters are quoted as JSON."""
    return path if path.isprintable() and not set(path) & {'"', "\\"} and path == path.strip() else json.dumps(path)


def format_size(count: int) -> str:
    """Format a number of bytes, such as `12 kB`, `5 MB` or `5.2 MB`."""
    if count < 1_000:
        return f"{count} byte{'s' * (count != 1)}"
    if count < 999_500:
        return f"{count / 1_000:.0f} kB"
    unit, size = ("MB", 10**6) if count < 999_500_000 else ("GB", 10**9)
    return f"{count / size:.1f} {unit}".replace(".0 ", " ")


def _unescape(match: re.Match[str]) -> str:
    """Return the character of an escape. Text that only looks like an escape stays unchanged."""
    code = int(match[1], 16)
    return chr(code) if code <= sys.maxunicode and escape_invisible(chr(code)) == match[0] else match[0]


def _escape(match: re.Match[str], text: str) -> str:
    char = match[0]
    if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn") and not _HIDDEN_BLANK.match(char):
        return char
    if char in (_ZERO_WIDTH_JOINER, _EMOJI_STYLE) and _is_within_emoji(text, match.start()):
        return char
    return f"<U+{ord(char):04X}>"


def _is_within_emoji(text: str, at: int) -> bool:
    """Return True for a joiner between two emoji and for a variation selector after an emoji."""
    before = text[at - 1 : at]
    if text[at] == _EMOJI_STYLE:
        return _is_picture(before)
    if before == _EMOJI_STYLE:
        before = text[at - 2 : at - 1]
    return _is_picture(before) and _is_picture(text[at + 1 : at + 2])


def _is_picture(char: str) -> bool:
    return char > "\xff" and (unicodedata.category(char) in ("So", "Sk") or char in "\u2194\u2195")


HIDDEN = "[hidden]"
# The minimum length of a secret to hide. Shorter keys are placeholders for local servers and may be ordinary words.
_MIN_SECRET_LENGTH = 6
# The length of the pieces of a secret to hide. Shorter pieces also occur in ordinary text.
_PIECE_LENGTH = 8
# The minimum length of a secret whose pieces are hidden. Shorter secrets may be placeholders made of ordinary words.
_MIN_LONG_SECRET_LENGTH = 16
_MAX_EXCERPT_LENGTH = 300
# Matches keys with a vendor prefix, bearer tokens and long runs of hexadecimal digits.
_KEY_PATTERN = re.compile(r"\bsk[-_][\w-]{8,}|\bAIza[\w-]{16,}|(?i:\bbearer)\s+\S+|\b[0-9a-fA-F]{32,}\b")
# Matches long runs of base64 characters, such as signatures and encrypted blocks.
_BASE64_PATTERN = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
# Matches the separators between the parts of a name. The parts of a name are usually shorter than those of base64 text.
_PART_SEPARATOR = re.compile(r"[-_/=]")
_MAX_PART_LENGTH = 12
_CAMEL_CASE = re.compile(r"[a-z]{0,12}(?:[A-Z]{1,5}[a-z]{2,14})+")
# The minimum length of a model ID that is not masked. Shorter IDs may occur in a key by chance.
_MIN_MODEL_LENGTH = 8


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Hide secrets, their URL-encoded forms and pieces of long secrets in the text. The search takes linear time."""
    for secret in secrets:
        for spelling in {secret, quote(secret, safe="")}:
            if len(spelling) >= _MIN_SECRET_LENGTH:
                text = text.replace(spelling, HIDDEN)
            if len(spelling) >= _MIN_LONG_SECRET_LENGTH:
                text = _hide_pieces(text, spelling)
    return text


def _hide_pieces(text: str, secret: str) -> str:
    secret_pieces = {secret[at : at + _PIECE_LENGTH] for at in range(len(secret) - _PIECE_LENGTH + 1)}
    output: list[str] = []
    at = 0
    while at < len(text):
        end = at
        while text[end : end + _PIECE_LENGTH] in secret_pieces:
            end += 1
        if end > at:
            output.append(HIDDEN)
            at = end + _PIECE_LENGTH - 1
        else:
            output.append(text[at])
            at += 1
    return "".join(output).replace(HIDDEN * 2, HIDDEN)


def mask(text: str, model: str = "") -> str:
    """Mask any text that looks like a key, a signature or encrypted thinking.

    `model` is the requested model ID, which is never masked. Use `hide_secrets` to hide the process's own keys.
    """
    return _BASE64_PATTERN.sub(lambda run: _mask_run(run[0], model), _KEY_PATTERN.sub(HIDDEN, text))


def mask_keys(text: str) -> str:
    """Mask any text that looks like a key. Unlike `mask`, keep signatures, because code contains similar text."""
    return _KEY_PATTERN.sub(HIDDEN, text)


def make_excerpt(text: str, model: str = "") -> str:
    """Return the text as one printable line of at most 300 characters for the user, with secrets masked.

    Return an empty string for HTML.
    """
    if text.lstrip()[:1] == "<":
        return ""
    # Limit the length first to limit the cost. Remove invisible characters before masking, because they can hide a key.
    # Truncate last, so that no part of a key remains unmasked.
    line = " ".join(text[: 20 * _MAX_EXCERPT_LENGTH].split())
    line = mask("".join(char for char in line if char.isprintable()), model)
    return line if len(line) <= _MAX_EXCERPT_LENGTH else line[: _MAX_EXCERPT_LENGTH - 1] + "…"


def _mask_run(run: str, model: str) -> str:
    if len(model) >= _MIN_MODEL_LENGTH and model in run:
        return model.join(_BASE64_PATTERN.sub(lambda part: _mask_run(part[0], ""), part) for part in run.split(model))
    return run if _is_name(run) else HIDDEN


def _is_name(run: str) -> bool:
    """Return whether a run of characters is an identifier, model ID or host name.

    Unlike names, base64 text mixes upper case, lower case and digits.
    """
    if run.islower() or run.isupper() or run.isdigit() or _CAMEL_CASE.fullmatch(run) is not None:
        return True
    return all(len(part) <= _MAX_PART_LENGTH for part in _PART_SEPARATOR.split(run))
