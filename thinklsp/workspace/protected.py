"""Names that tools may not touch, whatever folder they stand in and whether or not the file exists.

A written file on this list would be run, or believed, by an editor, a version control system, a shell, a package
manager or another assistant. Secrets may not be read either. Names are compared as the most forgiving disk would:
without regard to letter case, Unicode form, invisible characters and trailing dots. Which file a path really leads
to is decided elsewhere, by descriptor.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import lru_cache

# Never to be touched by a tool, not even where the user's file allows it: the server's own documents.
OWN = (".thinklsp",)

# Refused for reading and for every change. A pattern without a slash matches any one component of a path.
SECRET = (
    ".env*", ".ssh", ".aws", ".gnupg", ".netrc", "_netrc", ".pypirc", ".npmrc", ".git-credentials",
    ".pgpass", ".docker/config.json", ".kube/config", ".azure", ".config/gcloud", ".htpasswd", ".vault-token",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
)  # fmt: skip

# Refused for writing, creating, renaming and deleting; free to read.
GUARDED = (
    # Version control
    ".git", "git~[0-9]", ".gitmodules", ".gitattributes", ".gitconfig", ".hg", ".hgrc", ".svn", ".jj", ".bzr",
    # Editors
    ".vscode", ".vscode-*", "*.code-workspace", ".idea", ".fleet", ".zed", ".helix", ".nvim.lua", ".nvimrc", ".nvim",
    ".exrc", ".vimrc", ".gvimrc", ".lvimrc", "_vimrc", "_exrc", ".vim", ".dir-locals*.el", ".emacs", ".emacs.d",
    "*.sublime-project", "*.sublime-workspace", ".kateproject*", ".vs", ".theia",
    # Other assistants, and files that are read as instructions
    ".mcp.json", "mcp.json", ".cursor*", ".claude*", ".codex", ".gemini", ".windsurf*", ".kiro", ".amazonq", ".roo",
    ".roomodes", ".roorules*",
    ".cline*", ".aider*", ".continue*", ".junie", ".goosehints", ".opencode", ".augment*", ".trae", ".qwen",
    "AGENTS.md", "AGENTS.*.md", "AGENT.md", "CLAUDE.md", "CLAUDE.*.md", "GEMINI.md", "QWEN.md", ".rules",
    ".github/copilot-*", ".github/instructions", ".github/prompts", ".github/chatmodes", ".github/agents",
    # Continuous integration, containers, hooks
    ".github/workflows", ".github/actions", ".gitlab-ci.yml", ".gitlab-ci.yaml", ".gitea/workflows",
    ".forgejo/workflows", ".circleci", ".devcontainer", ".devcontainer.json", ".husky", ".githooks",
    ".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "lefthook*.y*ml", ".lefthook*",
    # Package managers and interpreters
    "pip.conf", "pip.ini", ".condarc", ".yarnrc*", "*.pth", "sitecustomize.py", "usercustomize.py", ".pythonstartup",
    ".cargo/config", ".cargo/config.toml", ".bundle", ".gemrc", ".irbrc", ".pryrc", ".Rprofile", ".pnpmfile.*js",
    # Shells and tools that read a file of the folder they run in
    ".ripgreprc", ".mise.toml", "mise.toml", ".tool-versions", ".bashrc", ".bash_profile", ".bash_login",
    ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc",
    ".cshrc", ".tcshrc", ".login", ".inputrc", ".config/fish", ".tmux.conf", ".screenrc", ".curlrc", ".wgetrc",
    ".gdbinit", ".lldbinit", ".watchmanconfig",
)  # fmt: skip


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
        # An empty alternative would match every name.
        firsts = {translate(pattern.parts[0]) for pattern in self.patterns} or {r"(?!)"}
        self._first_part = re.compile("|".join(sorted(firsts)))

    def spans(self, folded: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, range]]:
        if any(self._first_part.match(name) for names in folded for name in names):
            for pattern in self.patterns:
                for span in pattern.spans(folded):
                    yield pattern.text, span


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
        self._secret = _rules(SECRET)
        self._guarded = _rules(GUARDED)
        self._allow = _rules(tuple(allow))

    def reading_refused(self, parts: Sequence[str]) -> str | None:
        """What follows the path in a sentence of refusal, or None where it may be read. Components, not a path."""
        folded = [_folded(part) for part in parts]
        if any(self._own.spans(folded)):
            return "belongs to thinklsp itself and is closed to tools."
        if (pattern := self._refusing(self._secret, folded)) is not None:
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

    def _refusing(self, rules: _Rules, folded: Sequence[tuple[str, ...]]) -> str | None:
        allowed = [span for _, span in self._allow.spans(folded)]
        for text, span in rules.spans(folded):
            if not any(span.start in cover and span[-1] in cover for cover in allowed):
                return text
        return None


def _folded(name: str) -> tuple[str, ...]:
    """The names that a disk may know a component by: the whole, and what stands before a stream name."""
    whole = _fold(name)
    stem, colon, _ = whole.partition(":")
    return (whole, stem) if colon else (whole,)


def _fold(name: str) -> str:
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", visible).casefold())
    return folded.rstrip(". ")
