"""Names that tools may not touch, whatever folder they stand in and whether or not the file exists. `protected.toml`
lists them.

A written file on this list would be run, or believed, by an editor, a version control system, a shell, a package
manager or another assistant. Secrets may not be read either. Names are compared as the most forgiving disk would:
without regard to letter case, Unicode form, invisible characters and trailing dots. Which file a path really leads
to is decided elsewhere, by descriptor.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

# Never to be touched by a tool, not even where the user's file allows it: the server's own documents.
OWN = (".thinklsp",)

Kind = Literal["secret", "secret_files", "guarded"]


@cache
def listed(kind: Kind) -> tuple[str, ...]:
    """Return the patterns of `protected.toml`."""
    groups = tomllib.loads(files(__package__).joinpath("protected.toml").read_text("utf-8"))[kind]
    return tuple(pattern for group in groups.values() for pattern in group)


@dataclass(frozen=True, slots=True)
class _Pattern:
    text: str
    parts: tuple[str, ...]

    def spans(self, folded: Sequence[tuple[str, ...]]) -> Iterator[range]:
        """Runs of components that the pattern matches. `folded` holds the names that each component may go by."""
        for start in range(len(folded) - len(self.parts) + 1):
            window = folded[start : start + len(self.parts)]
            if all(
                any(fnmatchcase(name, part) for name in names) for names, part in zip(window, self.parts, strict=True)
            ):
                yield range(start, start + len(self.parts))


class _Rules:
    """Patterns with a quick answer for the many paths that none of them matches."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.patterns = tuple(
            _Pattern(text, tuple(_fold(part) for part in text.strip("/").split("/") if part not in ("", "**")))
            for text in texts
            if text.strip("/*")
        )
        self._is_first = _any_of(pattern.parts[0] for pattern in self.patterns)
        self.is_last = _any_of(pattern.parts[-1] for pattern in self.patterns)

    def spans(self, folded: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, range]]:
        if any(self._is_first(name) for names in folded for name in names):
            for pattern in self.patterns:
                for span in pattern.spans(folded):
                    yield pattern.text, span


def _any_of(parts: Iterable[str]) -> Callable[[str], bool]:
    """Return the test whether a name matches one of the patterns: most are plain names, which a set finds at once."""
    patterns = set(parts)
    plain = frozenset(part for part in patterns if not set(part) & set("*?["))
    # An empty alternative would match every name.
    wild = re.compile("|".join(sorted(translate(part) for part in patterns - plain)) or "(?!)")
    return lambda name: name in plain or wild.match(name) is not None


@lru_cache(maxsize=8)
def _rules(texts: tuple[str, ...]) -> _Rules:
    """Slow to make, and nearly always the same."""
    return _Rules(texts)


class ProtectedPaths:
    """The list as one question. `allow`: patterns of the same form from the user's own file.

    An allowed pattern lifts a refusal only where it covers the components that the refusal is about: `AGENTS.md`
    does not open `.git/AGENTS.md`.
    """

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._own = _rules(OWN)
        self._secret = _rules(listed("secret"))
        self._secret_files = _rules(listed("secret_files"))
        self._guarded = _rules(listed("guarded"))
        self._allow = _rules(tuple(allow))

    def reading_refused(self, parts: Sequence[str]) -> str | None:
        """What follows the path in a sentence of refusal, or None where it may be read. Components, not a path."""
        names = [_folded(part) for part in parts]
        if any(self._own.spans(names)):
            return "belongs to thinklsp itself and is closed to tools."
        pattern = self._refusing(self._secret, names) or self._refusing(self._secret_files, names, at_end=True)
        if pattern is not None:
            return f"may hold secrets (`{pattern}`) and is not read. The user can allow it in the user's own settings."
        return None

    def writing_refused(self, parts: Sequence[str]) -> str | None:
        """The same for creating, changing, renaming and deleting."""
        if (reason := self.reading_refused(parts)) is not None:
            return reason
        pattern = self._refusing(self._guarded, [_folded(part) for part in parts])
        if pattern is None:
            return None
        return f"is protected (`{pattern}`) and cannot be changed by tools. Tell the user what should stand in it."

    def is_candidate(self, name: str) -> bool:
        """Whether `reading_refused` could refuse a path for its last component. Fast."""
        return any(
            rules.is_last(form) for form in _folded(name) for rules in (self._secret, self._secret_files, self._own)
        )

    def _refusing(self, rules: _Rules, folded: Sequence[tuple[str, ...]], *, at_end: bool = False) -> str | None:
        allowed = [span for _, span in self._allow.spans(folded)]
        for text, span in rules.spans(folded):
            if at_end and span.stop < len(folded):
                continue
            if not any(span.start in cover and span[-1] in cover for cover in allowed):
                return text
        return None


def folded(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the components as a forgiving disk would compare them."""
    return tuple(_fold(part) for part in parts)


def _folded(name: str) -> tuple[str, ...]:
    """The names that a disk may know a component by: the whole, and what stands before a stream name."""
    whole = _fold(name)
    stem, colon, _ = whole.partition(":")
    return (whole, stem) if colon else (whole,)


def _fold(name: str) -> str:
    if name.isascii() and name.isprintable():
        return name.lower().rstrip(". ")
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", visible).casefold())
    return folded.rstrip(". ")
