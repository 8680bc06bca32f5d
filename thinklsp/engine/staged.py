"""What is staged in the git repository of a folder, read so that nothing the repository says is run: no configuration
of users or of the system, no hook, monitor, pager, external diff, text conversion, or fetch of what is missing."""

from __future__ import annotations

import asyncio

from thinklsp.core.errors import TurnRefused
from thinklsp.tools.child import started
from thinklsp.tools.programs import find_program
from thinklsp.tools.shown import bounded, shown_name, visible
from thinklsp.workspace.view import WorkspaceView

_SECONDS = 10.0
_CHARS = 60_000
_BYTES = 4 * _CHARS
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_TERMINAL_PROMPT": "0",
}
_SET = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat"),
    # A folder that merely looks like a repository of its own is none.
    *("-c", "safe.bareRepository=explicit", "-c", "diff.external="),
)
_DIFF = (
    "diff",
    "--cached",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-renames",
    "--ignore-submodules=dirty",
)
_TEXT = ("--submodule=short", "--src-prefix=a/", "--dst-prefix=b/")


async def staged_diff(view: WorkspaceView, uri: str) -> str:
    """The staged changes of the repository that a document's workspace folder belongs to, bounded, with nothing in it
    that an eye would not see, and without files that may hold secrets. Raises TurnRefused with a sentence where there
    are none."""
    root = view.resolve(uri).root
    if root is None:
        raise TurnRefused("Staged changes are those of a workspace folder, and this document is in none.")
    git = find_program("git", [folder.root.path for folder in view.folders])
    if git is None:
        raise TurnRefused("The program git was not found outside of the workspace; it tells what is staged.")
    try:
        async with asyncio.timeout(_SECONDS):
            names = await _output(git, root.path, *_DIFF, "--name-only", "-z")
            if len(names) >= _BYTES:
                raise TurnRefused("More files are staged than can be told. Commit them in parts.")
            paths = [path for path in names.decode("utf-8", "surrogateescape").split("\0") if path]
            secret = [path for path in paths if root.protected.reading_refused(path.split("/")) is not None]
            left_out = [f":(top,exclude,literal){path}" for path in secret]
            diff = await _output(git, root.path, *_DIFF, *_TEXT, "--", ":(top)", *left_out)
    except TimeoutError:
        raise TurnRefused(f"git did not tell within {_SECONDS:.0f} seconds what is staged.") from None
    if not paths:
        raise TurnRefused("Nothing is staged: choose what to commit with git add first.")
    text = visible(diff.decode("utf-8", "replace").replace("\r\n", "\n")).rstrip("\n")
    named = ", ".join(shown_name(visible(path)) for path in secret)
    note = f"# Not shown, because they may hold secrets: {named}" if secret else ""
    return "\n".join(filter(None, (bounded(text, _CHARS), note)))


async def _output(git: str, folder: str, *arguments: str) -> bytes:
    """The beginning of what git prints. Raises TurnRefused where it fails."""
    argv = [git, "--no-pager", *_SET, *arguments]
    async with started(argv, folder, environment=_ENVIRONMENT) as process:
        if process.stdout is None or process.stderr is None:
            raise AssertionError("both are pipes")
        data = b""
        while len(data) < _BYTES and (more := await process.stdout.read(_BYTES - len(data))):
            data += more
        if len(data) < _BYTES:
            _check(await process.wait(), await process.stderr.read(1000))
    return data


def _check(status: int, errors: bytes) -> None:
    if status == 0:
        return
    said = errors.decode("utf-8", "replace")
    # Outside of a repository `git diff` is another program, which compares any two files.
    if "not a git repository" in said.lower() or "diff --no-index" in said:
        raise TurnRefused("The workspace folder belongs to no git repository, so nothing is staged.")
    if "dubious ownership" in said:
        raise TurnRefused("The git repository belongs to another user, so it is not read.")
    raise TurnRefused("git could not tell what is staged. Run git diff --cached in a terminal to see why.")
