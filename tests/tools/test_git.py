"""What git knows, without anything of the repository being run: every state of a file, and repositories that try."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from thinklsp.core.errors import ToolFailed
from thinklsp.sandbox.process import find_program
from thinklsp.tools.git import Changes, find_changes
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

GIT = find_program("git", ()) or "git"
pytestmark = pytest.mark.skipif(find_program("git", ()) is None, reason="git is not installed")


class Repository:
    """A repository with one commit, and a workspace folder in it."""

    def __init__(self, path: Path, below: str = "") -> None:
        self.path = path / "repository"
        self.folder = self.path / below
        self.folder.mkdir(parents=True)
        self.git("init", "-q")
        self.roots: list[Root] = []

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        done = subprocess.run([GIT, *who, *arguments], cwd=self.path, check=True, capture_output=True)
        return done.stdout.decode().strip()

    def write(self, name: str, text: str | bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def commit(self, **files: str) -> None:
        for name, text in files.items():
            self.write(name, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "one", "--allow-empty")

    def view(self, **documents: str) -> WorkspaceView:
        self.roots.append(root := Root(str(self.folder)))
        opened = [DocumentSnapshot((self.folder / name).as_uri(), 1, text) for name, text in documents.items()]
        return WorkspaceView([root], opened)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path)
    yield made
    for root in made.roots:
        root.close()


def marked(found: Changes) -> list[str]:
    return [line for line in found.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


async def test_every_state_of_a_file(repository: Repository) -> None:
    repository.commit(same="1\n", saved="1\n", unsaved="1\n", gone="1\n", staged="1\n", form="1\n2\n", moved="1\n")
    repository.write(".gitignore", "ignored*\n")
    repository.git("add", ".gitignore")
    repository.git("commit", "-q", "-m", "two")
    repository.write("saved", "saved\n")
    repository.write("staged", "staged\n")
    repository.git("add", "staged")
    repository.write("staged", "staged, and more\n")
    repository.write("form", "1\r\n2\r\n")
    repository.git("mv", "moved", "to")
    (repository.folder / "gone").unlink()
    repository.write("new é.txt", "new\n")
    repository.write("ignored.txt", "ignored\n")
    repository.write("picture", b"\x89PNG\xff")
    repository.write(".env", "SECRET=1\n")
    repository.git("add", ".env")
    os.symlink("/etc/passwd", repository.folder / "link")
    view = repository.view(
        unsaved="unsaved\n", same="1\n", **{"made.txt": "made\n", "ignored.py": "x\n", "scratch.py": "y\n"}
    )
    found = await find_changes(view)
    assert sorted(marked(found)) == sorted(
        ["-1", "+saved", "-1", "+unsaved", "-1", "-1", "+staged, and more", "+new", "+made", "+y", "-1", "+1"]
    )
    told = {left.split(" ", 1)[0] for left in found.omissions}
    assert told == {".env", "link", "picture"}
    assert "SECRET" not in found.diff
    names = {"saved", "unsaved", "gone", "staged", "new é.txt", "made.txt", "scratch.py", "moved", "to", *told}
    assert set(found.files) == names
    index = await find_changes(view, staged=True)
    assert sorted(marked(index)) == ["+1", "+staged", "-1", "-1"]
    assert set(index.files) == {"staged", "moved", "to", ".env"}
    assert index.omissions[0].startswith(".env ")
    one = await find_changes(view, view.resolve("staged"))
    assert (marked(one), one.files) == (["-1", "+staged, and more"], ("staged",))
    assert (await find_changes(view, view.resolve("same"))).files == ()


async def test_a_folder_below_the_top_and_before_the_first_commit(tmp_path: Path) -> None:
    repository = Repository(tmp_path, "deep/er")
    repository.write("a.py", "1\n")
    (repository.path / "above.py").write_text("2\n")
    view = repository.view()
    assert (await find_changes(view)).files == ("a.py",)
    repository.git("add", "-A")
    assert marked(await find_changes(view, staged=True)) == ["+1"]
    repository.git("commit", "-q", "-m", "one")
    repository.write("a.py", "3\n")
    repository.write("b/c.py", "4\n")
    (repository.path / "above.py").write_text("5\n")
    assert marked(await find_changes(repository.view())) == ["-1", "+3", "+4"]
    view = repository.view()
    assert (await find_changes(view, view.resolve("b"))).files == ("b/c.py",)
    for root in repository.roots:
        root.close()


async def test_what_is_shown_is_bounded_and_says_so(repository: Repository) -> None:
    repository.commit()
    for number in range(350):
        repository.write(f"f{number:03}.txt", f"{number}\n" * (8_000 if number == 1 else 1))
    repository.write("z.bin", b"x" * 5_000_000)
    found = await find_changes(repository.view())
    assert len(found.files) == 351
    assert 12_000 < len(found.diff) <= 40_000
    assert "f001.txt has more changes than are shown here" in found.omissions
    assert "f349.txt was not compared, because too many files differ" in found.omissions


# What a repository names to be run: configuration, attributes, files.
Traps = tuple[dict[str, str], dict[str, str]]
HOSTILE: list[Traps] = [
    ({"core.fsmonitor": "TRAP"}, {}),
    ({"core.fsmonitor": "true", "core.hooksPath": "hooks"}, {"hooks/fsmonitor-watchman": "TRAP"}),
    ({"filter.evil.clean": "TRAP", "filter.evil.smudge": "TRAP", "filter.evil.required": "true"},
     {".gitattributes": "* filter=evil\n"}),
    ({"filter.evil.process": "TRAP"}, {".git/info/attributes": "* filter=evil\n"}),
    ({"diff.external": "TRAP", "diff.evil.command": "TRAP", "diff.evil.textconv": "TRAP"},
     {".gitattributes": "* diff=evil\n"}),
    ({"core.pager": "TRAP", "pager.diff-index": "TRAP", "core.editor": "TRAP", "core.sshCommand": "TRAP"}, {}),
    ({"core.hooksPath": "hooks"}, {"hooks/post-index-change": "TRAP", "hooks/pre-commit": "TRAP"}),
    ({"alias.cat-file": "!TRAP", "alias.ls-files": "!TRAP", "credential.helper": "!TRAP", "gpg.program": "TRAP"}, {}),
    ({"extensions.partialClone": "evil", "remote.evil.url": "ext::TRAP", "remote.evil.promisor": "true",
      "protocol.ext.allow": "always"}, {"missing": "an object of HEAD is missing"}),
    ({"include.path": "../more"}, {"more": "[core]\n\tfsmonitor = TRAP\n"}),
    ({"core.alternateRefsCommand": "TRAP", "interactive.diffFilter": "TRAP", "remote.o.uploadpack": "TRAP"},
     {".git/hooks/post-index-change": "TRAP", ".git/hooks/reference-transaction": "TRAP", "git": "TRAP"}),
]  # fmt: skip


@pytest.mark.parametrize("traps", HOSTILE, ids=lambda traps: ",".join(traps[0]))
async def test_no_repository_runs_anything(repository: Repository, traps: Traps) -> None:
    settings, files = traps
    sprung, trap = repository.path.parent / "sprung", repository.path.parent / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\ncat\n")
    trap.chmod(0o755)
    repository.commit(kept="1\n", lost="1\n")
    repository.write("kept", "2\n")
    repository.git("add", "kept")
    if "missing" in files:
        name = repository.git("hash-object", "lost")
        repository.write("lost", "2\n")
        (repository.path / ".git/objects" / name[:2] / name[2:]).unlink()
    for name, text in files.items():
        repository.write(name, text.replace("TRAP", f"#!/bin/sh\n{trap}\n" if "hooks/" in name else str(trap)))
        (repository.folder / name).chmod(0o755)
    for name, value in settings.items():
        repository.git("config", name, value.replace("TRAP", str(trap)))
    repository.write("kept", "3\n")
    sprung.unlink(missing_ok=True)
    for staged in (False, True):
        view = repository.view()
        try:
            found = await find_changes(view, staged=staged)
        except ToolFailed:
            assert "missing" in files
        else:
            assert "kept" in found.files
    assert not sprung.exists()


async def test_git_of_the_workspace_is_not_run(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit(a="1\n")
    repository.write("bin/git", "#!/bin/sh\ntouch sprung\n")
    (repository.folder / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{repository.folder / 'bin'}{os.pathsep}.")
    with pytest.raises(ToolFailed, match="not installed"):
        await find_changes(repository.view())
    assert not (repository.folder / "sprung").exists()


async def test_where_there_is_no_repository(tmp_path: Path) -> None:
    with Root(str(tmp_path), name="work") as root:
        view = WorkspaceView([root])
        with pytest.raises(ToolFailed, match="The folder work is not in a git repository"):
            await find_changes(view)
    with pytest.raises(ToolFailed, match="No folder is open"):
        await find_changes(WorkspaceView())
