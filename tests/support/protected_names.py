"""The names that no tool may write, in every spelling that some disk takes for the same name."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

# What the product promises, independent of how the list spells it.
PROMISED = [
    ".git/config", ".git/hooks/pre-commit", ".gitmodules", ".gitattributes", ".gitconfig", ".hg/hgrc",
    ".vscode/settings.json", ".vscode/tasks.json", "a.code-workspace", ".idea/workspace.xml",
    ".fleet/settings.json", ".zed/settings.json", ".helix/config.toml", ".nvim.lua", ".nvimrc", ".exrc",
    ".vimrc", ".dir-locals.el", ".dir-locals-2.el", "x.sublime-project", ".envrc", ".env", ".env.local",
    ".env.production", ".mcp.json", "mcp.json", ".cursor/mcp.json", ".cursorrules", ".claude/settings.json",
    ".codex/config.toml", ".gemini/settings.json", ".windsurfrules", ".kiro/x", ".amazonq/x", ".roo/mcp.json",
    ".clinerules", ".aider.conf.yml", ".continue/config.json", ".thinklsp/chat/x.chat.md", "AGENTS.md",
    "CLAUDE.md", ".devcontainer/devcontainer.json", ".github/workflows/ci.yml", ".gitlab-ci.yml",
    ".husky/pre-commit", ".pre-commit-config.yaml", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", "pip.conf",
    "evil.pth", "sitecustomize.py", "usercustomize.py", ".ripgreprc", ".bashrc", ".zshrc", ".profile",
    ".ssh/id_rsa", ".ssh/authorized_keys", ".aws/credentials", ".netrc", ".gnupg/x",
    ".github/copilot-instructions.md",
]  # fmt: skip


def spellings(path: str) -> Iterator[str]:
    """The same names as some disk would take them."""
    head, _, tail = path.rpartition("/")
    yield path
    yield path.upper()
    yield path.title()
    yield unicodedata.normalize("NFD", path)
    yield path.replace("s", "\u017f").replace("k", "\u212a")
    yield "/".join(f"{part}." for part in path.split("/"))
    yield "/".join(f"{part} " for part in path.split("/"))
    yield f"{path[:2]}\u200c{path[2:]}"
    yield f"deep/er/{path}"
    yield f"{head}/{tail}::$DATA" if head else f"{path}::$DATA"


def parts_of(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)
