"""The form of a text: byte order mark, line ends, and whether the last line has one.

Editors change it when they open or save a file and nobody has typed, so in a merge it is no change of the user's: the
texts of a turn are put into the form that the text has now. What the turn itself changed of the form stays changed.
"""

from __future__ import annotations

import re

_BOM = "\ufeff"
_END = re.compile(r"\r\n|\r|\n")
_LAST_END = re.compile(r"(?:\r\n|\r|\n)\Z")


def in_form_of(now: str, before: str, after: str) -> tuple[str, str]:
    """What a turn found and what it wrote, in the form of `now`."""
    mark = _BOM if now.startswith(_BOM) else ""
    plain = now.removeprefix(_BOM)
    before, after = before.removeprefix(_BOM), after.removeprefix(_BOM)
    old, new = set(_END.findall(before)), set(_END.findall(plain))
    if len(new) == 1 and len(old) <= 1 and old != new:
        [end] = new
        before, after = _END.sub(end, before), _END.sub(end, after)
    if before and plain and _is_ended(before) != _is_ended(plain):
        before, after = _ended_like(plain, before), _ended_like(plain, after)
    return mark + before, mark + after


def same_but_for_form(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or in_form_of(one, other, "")[0] == one


def _is_ended(text: str) -> bool:
    return text[-1:] in ("\r", "\n")


def _ended_like(plain: str, text: str) -> str:
    end = _LAST_END.search(plain)
    if end is None:
        return _LAST_END.sub("", text)
    return text if not text or _is_ended(text) else text + end[0]
