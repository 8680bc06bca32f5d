"""The form of a text: byte order mark, line ends, and whether the last line has one.

Editors change it when they open or save a file and nobody has typed, so in a merge it is no change of the user's: the
texts of a turn are put into the form that the text has now. What the turn itself changed of the form stays changed.
"""

from __future__ import annotations

import re

from thinklsp.workspace.merge import Conflict, Merged, merge

_BOM = "\ufeff"
_END = re.compile(r"\r\n|\r|\n")
_LAST_END = re.compile(r"(?:\r\n|\r|\n)\Z")


def merge_onto(now: str, before: str, after: str, *, wins: bool = False) -> Merged | Conflict:
    """A turn's change from `before` to `after`, made to the text as it is now, whose form it keeps. `wins`: in regions
    that both have changed."""
    mark, plain = _parted(now)
    merged = merge(*_in_form_of(plain, _parted(before)[1], _parted(after)[1]), plain, ours_wins=wins)
    return Merged(mark + merged.text) if isinstance(merged, Merged) else merged


def same_but_for_form(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    plain = _parted(one)[1]
    return _in_form_of(plain, _parted(other)[1], "")[0] == plain


def _parted(text: str) -> tuple[str, str]:
    """The byte order mark and the rest. It stands beside the first line and is no part of it."""
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _in_form_of(plain: str, before: str, after: str) -> tuple[str, str]:
    old, new = _ends_in(before), _ends_in(plain)
    if len(new) == 1 and len(old) <= 1 and old != new:
        [end] = new
        before, after = _END.sub(end, before), _END.sub(end, after)
    if before and plain and _is_ended(before) != _is_ended(plain):
        before, after = _ended_like(plain, before), _ended_like(plain, after)
    return before, after


def _ends_in(text: str) -> set[str]:
    """Most texts have one kind, which is found without looking at every line."""
    if "\r" not in text:
        return {"\n"} if "\n" in text else set()
    return set(_END.findall(text))


def _is_ended(text: str) -> bool:
    return text[-1:] in ("\r", "\n")


def _ended_like(plain: str, text: str) -> str:
    end = _LAST_END.search(plain)
    if end is None:
        return _LAST_END.sub("", text)
    return text if not text or _is_ended(text) else text + end[0]
