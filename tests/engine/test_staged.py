"""The staged diff of a repository that wants to be more than read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from thinklsp.core.errors import TurnRefused
from thinklsp.engine.staged import staged_diff
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import WorkspaceFolder, WorkspaceView

PLAIN = {"PATH": os.defpath, "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}


def git(folder: Path, *arguments: str) -> bytes:
    argv = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com", *arguments]
    return subprocess.run(argv, cwd=folder, env=PLAIN, check=True, capture_output=True).stdout


def view(folder: Path) -> WorkspaceView:
    return WorkspaceView([(WorkspaceFolder(path_to_uri(str(folder)), ""), Root(str(folder)))])


async def diff(folder: Path) -> str:
    return await staged_diff(view(folder), path_to_uri(str(folder / "a.txt")))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "x")
    return folder


async def test_nothing_that_the_repository_says_is_run(repository: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    (repository / "a.txt").write_text("two\n")
    (repository / ".gitattributes").write_text("* diff=x filter=x\n")
    git(repository, "add", "-A")
    for key in (
        *("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "diff.external", "diff.x.command"),
        *("diff.x.textconv", "filter.x.clean", "filter.x.smudge", "filter.x.process", "pager.diff", "alias.diff"),
        *("gpg.program", "core.alternateRefsCommand", "interactive.diffFilter", "remote.o.uploadpack"),
    ):
        git(repository, "config", key, str(program))
    for name in ("post-index-change", "pre-commit", "reference-transaction"):
        hook = repository / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.symlink_to(program)
    (repository / "git").symlink_to(program)
    assert "-one\n+two" in await diff(repository)
    assert not mark.exists()


async def test_what_is_missing_is_not_fetched(repository: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (repository / "a.txt").write_text("two\n")
    git(repository, "add", "-A")
    for blob in (repository / ".git/objects").glob("??/*"):
        if git(repository, "cat-file", "-t", blob.parent.name + blob.name) == b"blob\n":
            blob.unlink()
    git(repository, "config", "extensions.partialClone", "o")
    git(repository, "config", "core.repositoryFormatVersion", "1")
    git(repository, "config", "remote.o.promisor", "true")
    git(repository, "config", "remote.o.url", f"ext::sh -c touch% {mark}")
    git(repository, "config", "protocol.ext.allow", "always")
    with pytest.raises(TurnRefused, match="could not tell what is staged"):
        await diff(repository)
    assert not mark.exists()


async def test_it_is_bounded_visible_and_without_secrets(repository: Path) -> None:
    (repository / "a.txt").write_text("hidden \u202e here\n" + "x" * 300_000 + "\n")
    (repository / "b").mkdir()
    (repository / "b/.env.local").write_text("KEY=1\n")
    (repository / "ü \u202e.pem").write_text("KEY=2\n")
    git(repository, "add", "-A")
    text = await diff(repository)
    assert "hidden <U+202E> here" in text
    assert len(text) < 61_000
    assert "KEY" not in text
    assert "b/.env.local" in text.splitlines()[-1]
    assert "\u202e" not in text


async def test_a_folder_below_tells_of_the_whole_repository(repository: Path) -> None:
    (repository / "below").mkdir()
    (repository / "a.txt").write_text("two\n")
    git(repository, "add", "-A")
    assert "+two" in await diff(repository / "below")


async def test_where_nothing_is_staged_it_says_so(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(TurnRefused, match=r"Nothing is staged: .* git add"):
        await diff(repository)
    plain = tmp_path / "plain"
    plain.mkdir()
    with pytest.raises(TurnRefused, match="no git repository"):
        await diff(plain)
    # What looks like a repository of its own, within the folder or as the folder, is none.
    bare = tmp_path / "bare"
    git(tmp_path, "init", "--bare", "bare")
    with pytest.raises(TurnRefused):
        await diff(bare)
