"""The rules for paths that tools may not read or change, and the removal of logins from git's configuration.

`protected.toml` lists the paths, which are protected in every folder. Tools may not read secrets, and may not change
files that another program would run or trust. The comparison of names ignores letter case, Unicode normalization,
invisible characters and trailing dots.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

# The folder of the server's own documents. The user's settings cannot make it accessible to tools.
OWN_FOLDERS = (".thinklsp",)

# Names that editors and people give to a copy of a file. Few names end like one, and this look is faster.
_BACKUP_END = re.compile(r"bak|kup|old|rig|nal|ave|ved|opy|[te]mp|rev|sw[a-z]")
_BACKUP = re.compile(
    r"#(.+)#|\.?(.+)\.sw[a-z]"
    r"|(.+?)(?:~|[._-](?:bak|backup|old|orig|original|save|saved|copy|tmp|temp|prev|\d{1,8}))+"
)

_WILDCARDS = set("*?[")

_ListName = Literal["secret", "secret_files", "guarded"]


@cache
def load_patterns(kind: _ListName) -> tuple[str, ...]:
    """Return the patterns of the list `kind` in `protected.toml`."""
    groups = tomllib.loads(files(__package__).joinpath("protected.toml").read_text("utf-8"))[kind]
    return tuple(pattern for group in groups.values() for text in group for pattern in _expand_braces(text))


def _expand_braces(text: str) -> Iterator[str]:
    """Yield a pattern for each combination of the alternatives in braces."""
    head, _, rest = text.partition("{")
    choices, brace, tail = rest.partition("}")
    if not brace:
        yield text
    for choice in choices.split(",") if brace else ():
        yield from _expand_braces(head + choice + tail)


class _Rules:
    """A list of patterns with a fast check for paths that no pattern matches."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._patterns = tuple(
            (text, tuple(_fold(part) for part in text.strip("/").split("/") if part not in ("", "**")))
            for text in texts
            if text.strip("/*")
        )
        self._is_first = _build_matcher(parts[0] for _, parts in self._patterns)
        self.is_last = _build_matcher(parts[-1] for _, parts in self._patterns)

    def find_spans(self, folded: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, range]]:
        """Yield each pattern with the ranges of components that it matches.

        `folded` contains the possible names of each component.
        """
        if not any(self._is_first(name) for names in folded for name in names):
            return
        for text, parts in self._patterns:
            for start in range(len(folded) - len(parts) + 1):
                pairs = zip(folded[start : start + len(parts)], parts, strict=True)
                if all(any(fnmatchcase(name, part) for name in names) for names, part in pairs):
                    yield text, range(start, start + len(parts))


def _build_matcher(parts: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that returns True if any pattern matches a name.

    Most patterns are plain names, which are looked up in a set, or the ends of names.
    """
    patterns = set(parts)
    plain = frozenset(part for part in patterns if not set(part) & _WILDCARDS)
    ends = {part for part in patterns if part[0] == "*" and not set(part[1:]) & _WILDCARDS}
    suffixes = tuple(part[1:] for part in ends)
    # An empty regular expression would match every name. If there are no wildcards, use one that matches no name.
    wild = re.compile("|".join(sorted(translate(part) for part in patterns - plain - ends)) or "(?!)")
    return lambda name: name in plain or name.endswith(suffixes) or wild.match(name) is not None


@lru_cache(maxsize=8)
def _build_rules(texts: tuple[str, ...]) -> _Rules:
    """Build the rules for a list of patterns. The rules are cached, because building them is slow."""
    return _Rules(texts)


class ProtectedPaths:
    """The rules for protected paths. `allow` contains the user's patterns for paths that tools may use.

    A pattern allows a path only if it matches the protected part of the path. For example, `AGENTS.md` does not allow
    `.git/AGENTS.md`.
    """

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._own = _build_rules(OWN_FOLDERS)
        self._secret = _build_rules(load_patterns("secret"))
        self._secret_files = _build_rules(load_patterns("secret_files"))
        self._guarded = _build_rules(load_patterns("guarded"))
        self._allow = _build_rules(tuple(allow))

    def explain_read_refusal(self, parts: Sequence[str]) -> str | None:
        """Return the reason why tools may not read a path, or None.

        The reason is the rest of a sentence that begins with the path.
        """
        names = [_fold_forms(part) for part in parts]
        if names:
            names[-1] = _add_originals(names[-1])
        if any(self._own.find_spans(names)):
            return "belongs to thinklsp, so tools cannot use it."
        pattern = self._find_refusing_pattern(self._secret, names) or self._find_refusing_pattern(
            self._secret_files, names, at_end=True
        )
        if pattern is not None:
            return f"may contain secrets (`{pattern}`). The user can let tools read it with `allow_protected`."
        return None

    def explain_write_refusal(self, parts: Sequence[str]) -> str | None:
        """Return the reason why tools may not change a path, or None.

        The reason is the rest of a sentence that begins with the path.
        """
        if (reason := self.explain_read_refusal(parts)) is not None:
            return reason
        pattern = self._find_refusing_pattern(self._guarded, [_fold_forms(part) for part in parts])
        if pattern is None:
            return None
        return f"is protected (`{pattern}`) and cannot be changed by tools. Tell the user which change to make."

    def is_candidate(self, name: str) -> bool:
        """Return True if `explain_read_refusal` might reject a path with this file name. This check is fast."""
        return any(
            rules.is_last(form)
            for form in _add_originals(_fold_forms(name))
            for rules in (self._secret, self._secret_files, self._own)
        )

    def _find_refusing_pattern(
        self, rules: _Rules, folded: Sequence[tuple[str, ...]], *, at_end: bool = False
    ) -> str | None:
        allowed = [span for _, span in self._allow.find_spans(folded)]
        for text, span in rules.find_spans(folded):
            if at_end and span.stop < len(folded):
                continue
            if not any(span.start in cover and span[-1] in cover for cover in allowed):
                return text
        return None


def fold_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the components in a form in which equivalent names are equal."""
    return tuple(_fold(part) for part in parts)


def _fold_forms(name: str) -> tuple[str, ...]:
    """Return the names that a path component can have on disk: the full name, and the name before an NTFS stream."""
    whole = _fold(name)
    stem, colon, _ = whole.partition(":")
    return (whole, stem) if colon else (whole,)


def _add_originals(forms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names with the names of the files of which they are backups, such as `a.key` for `a.key.bak`."""
    if not any(_BACKUP_END.fullmatch(form, max(0, len(form) - 3)) or form[-1:] in "~#0123456789" for form in forms):
        return forms
    return forms + tuple(match[match.lastindex or 0] for form in forms if (match := _BACKUP.fullmatch(form)))


def _fold(name: str) -> str:
    if name.isascii() and name.isprintable():
        return name.lower().rstrip(". ")
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", visible).casefold())
    return folded.rstrip(". ")


# The names of git's configuration files, in lower case.
_NAMES = frozenset((".gitconfig", ".gitmodules"))
_IN_GIT = frozenset(("config", "config.worktree"))
_GIT = ".git"

_CONTINUED = re.compile(rb"(?<!\\)((?:\\\\)*)\\\r?\n")
# Longer lines in git's configuration are removed, because matching them could take a long time.
_MAX_LINE_BYTES = 4096
_SECTION = re.compile(rb'\s*(\[\s*([\w.-]+)\s*(?:"(?:[^"\\]|\\.)*")?\s*\])')
_ENTRY = re.compile(rb"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=|$)")
_USER = re.compile(rb"(://)[^/?#\s]*@")
_HIDDEN_SECTION = b"credential"
_HIDDEN_KEY = re.compile(rb"extraheader|helper|pass|token|secret|api-?key|auth|cookie", re.IGNORECASE)
_HIDDEN_VALUE = re.compile(rb"authorization|bearer\s|(?:passw(?:or)?d|token|secret|api-?key)\s*[=:]", re.IGNORECASE)


def is_config_name(name: str) -> bool:
    """Return True if a file with this name can be a git configuration file."""
    return name.lower() in _IN_GIT | _NAMES


def is_git_config(folded: Sequence[str]) -> bool:
    """Return True if a path is a git configuration file in a folder named `.git`. The components must be folded."""
    return bool(folded) and (folded[-1] in _NAMES or (folded[-1] in _IN_GIT and _GIT in folded))


def strip_logins(data: bytes) -> bytes:
    """Remove secrets from a git configuration, such as users in URLs, extra headers and credential helpers.

    Without secrets, the result equals `data`.
    """
    lines = tuple(_redact_lines(data))
    if all(redacted == line for line, redacted in lines):
        return data
    return b"".join(redacted + b"\n" for _, redacted in lines if redacted)


def _redact_lines(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each logical line with its text after the removal of secrets."""
    section = b""
    for line in _CONTINUED.sub(rb"\1", data.removeprefix(b"\xef\xbb\xbf")).split(b"\n"):
        line = line.removesuffix(b"\r")
        if len(line) > _MAX_LINE_BYTES:
            yield line, b""
            continue
        section_match = _SECTION.match(line)
        head, rest = (b"", line) if section_match is None else (section_match[1], line[section_match.end() :])
        section = section if section_match is None else section_match[2].lower()
        yield line, _USER.sub(rb"\1", line) if _is_shown(section, rest) else _USER.sub(rb"\1", head)


def _is_shown(section: bytes, entry: bytes) -> bool:
    if not entry.strip() or entry.lstrip().startswith((b"#", b";")):
        return not _HIDDEN_VALUE.search(entry)
    entry_match = _ENTRY.match(entry)
    if entry_match is None or section.partition(b".")[0] == _HIDDEN_SECTION:
        return False
    return not _HIDDEN_KEY.search(entry_match[1]) and not _HIDDEN_VALUE.search(entry[entry_match.end() :])
