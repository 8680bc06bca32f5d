"""The sentence for a setting that does not exist, with the nearest one that does. Values are never repeated."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

# A hostile or wrong file can hold thousands.
_MAX_NAMED = 8
_MAX_LENGTH = 80
_CUTOFF = 0.7


def unknown_settings(names: Iterable[str], known: Collection[str], where: str = "") -> tuple[str, ...]:
    """Return one sentence for each name, at most eight, and one for the others. `where` is told behind the name."""
    ordered = sorted(names)
    said = [_sentence(name, known, where) for name in ordered[:_MAX_NAMED]]
    if len(ordered) > _MAX_NAMED:
        said.append(f"{len(ordered) - _MAX_NAMED} more settings{where} are unknown.")
    return tuple(said)


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that is meant most likely, with or without its groups, in any spelling."""
    by_spelling = {_plain(each.rpartition(".")[2]): each for each in known} | {_plain(each): each for each in known}
    for part in (name, name.rpartition(".")[2]):
        if matches := get_close_matches(_plain(part), by_spelling, n=1, cutoff=_CUTOFF):
            return by_spelling[matches[0]]
    return None


def shown(key: str) -> str:
    """Return the name of a key as a message may hold it: bounded, printable. Its end says most."""
    return "".join(c if c.isprintable() and c != "`" else "?" for c in key)[-_MAX_LENGTH:]


def _sentence(name: str, known: Collection[str], where: str) -> str:
    meant = nearest(name[-_MAX_LENGTH:], known)
    hint = "`thinklsp config table` lists all settings." if meant is None else f"Did you mean `{meant}`?"
    return f"Unknown setting `{shown(name)}`{where}. {hint}"


def _plain(name: str) -> str:
    return re.sub(r"^THINKLSP_|[-_.\s]", "", name).lower()
