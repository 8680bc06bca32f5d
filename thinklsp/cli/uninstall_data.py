"""List all files that thinklsp keeps on this machine, with their sizes, and delete them after a yes."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from thinklsp.cli.terminal import find_current_folder, is_confirmed, sanitize_text
from thinklsp.core.errors import PathRefused, ThinkLspError
from thinklsp.core.text_safety import format_size
from thinklsp.engine.session_commands import SessionCommands
from thinklsp.mcp_client.consent import APPROVALS_NAME, PINS_NAME
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import LOG_NAME, STORE_PATH, USERS_FOLDER, resolve_state_folder
from thinklsp.settings.config_files import find_config_path
from thinklsp.settings.sources import load_user_settings, resolve_settings
from thinklsp.workspace.uri import uri_to_path

# What thinklsp creates in its state folder. A user may have pointed it to a folder with other files, which are kept.
_STATE = {
    "sessions": "sessions, with their costs",
    "shadow": "copies of folders for commands",
    APPROVALS_NAME: "MCP servers of projects that you approved",
    PINS_NAME: "tools of MCP servers that you accepted",
    USERS_FOLDER: "data of the users of `thinklsp --ws`",
    LOG_NAME: "log",
}


_DOCUMENTS = ".thinklsp"
_CHAT_SUFFIX, _REVIEW_SUFFIX = ".chat.md", ".diff"
_CHAT_BEGIN = b"<!-- thinklsp session:"
_IGNORE_ALL = b"*\n"


@dataclass(frozen=True, slots=True)
class _Kept:
    """A file or a folder that thinklsp keeps. If there are `files`, only these files in the folder are deleted."""

    path: str
    description: str
    size: int
    files: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="delete without asking")


def run(args: argparse.Namespace) -> int:
    state = resolve_state_folder(os.environ)
    has_store = os.path.lexists(os.path.join(state, STORE_PATH))
    workspaces = asyncio.run(_list_workspaces(state)) if has_store else ()
    found = [*_find_state(state), *_find_workspace_data(workspaces, find_current_folder())]
    sizes = [format_size(each.size) for each in found]
    for each, size in zip(found, sizes, strict=True):
        print(f"{size:>{max(map(len, sizes))}}  {sanitize_text(each.path)}  ({each.description})")
    if not found:
        print("thinklsp keeps no data on this machine.")
    refusal = "Nothing was deleted. Use --yes to delete without confirmation."
    if found and not is_confirmed("Delete all of it permanently?", yes=args.yes, refusal=refusal):
        return 1
    failures = [failure for each in found for path in each.files or (each.path,) for failure in _delete(path)]
    for each in found:
        for folder in (*map(os.path.dirname, each.files), each.path) if each.files else ():
            _remove_if_empty(folder)
    _remove_if_empty(state)
    for failure in failures:
        sys.stderr.write(f"thinklsp uninstall-data: {sanitize_text(failure)}\n")
    config = os.path.dirname(find_config_path(os.environ))
    if os.path.isdir(config):
        print(f"Your own settings and keys in {sanitize_text(config)} are kept, as are keys in the system's keyring.")
    return 1 if failures else 0


def _remove_if_empty(folder: str) -> None:
    with suppress(OSError):
        os.rmdir(folder)


def _delete(path: str) -> Iterator[str]:
    """Delete a file, a link or a folder without following links. Yield a message on failure."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        yield f"{path} could not be deleted: {error.strerror}. Delete it yourself."


async def _list_workspaces(state: str) -> Sequence[str]:
    """Return the folders of all sessions. Raises ThinkLspError if a session is in use.

    If the store cannot be read, the reason is printed and the result is empty.
    """
    store = SqliteStore(state)
    try:
        entries = await SessionCommands(store, "", everywhere=True).list()
    finally:
        await store.aclose()
    for problem in store.problems:
        sys.stderr.write(f"thinklsp uninstall-data: {sanitize_text(problem)}\n")
    if used := [entry for entry in entries if entry["busy"]]:
        raise ThinkLspError(
            f"Nothing was deleted: an editor uses the session “{used[0]['title']}”. Close your editors."
        )
    paths = []
    for entry in entries:
        with suppress(PathRefused, UnicodeError):
            paths.append(uri_to_path(entry["workspace"]))
    return paths


def _find_state(state: str) -> Iterator[_Kept]:
    with suppress(OSError):
        for name in sorted(os.listdir(state)):
            # Old logs have a number at the end.
            known = _STATE.get(name, _STATE[LOG_NAME] if name.startswith(f"{LOG_NAME}.") else None)
            if known is not None:
                path = os.path.join(state, name)
                yield _Kept(path, known, _measure(path))


def _find_workspace_data(workspaces: Iterable[str], current: str) -> Iterator[_Kept]:
    """Yield the documents in the workspaces of all sessions and in the current folder."""
    suffixes: tuple[str, ...] = (_CHAT_SUFFIX,)
    with suppress(ThinkLspError):
        suffixes += (resolve_settings(load_user_settings(os.environ)).settings.chat.file_suffix,)
    for folder in dict.fromkeys((current, *workspaces)):
        path = os.path.join(folder, _DOCUMENTS)
        if not os.path.islink(path) and (files := tuple(_list_documents(path, suffixes))):
            others = sum(len(names) for _, _, names in os.walk(path)) - len(files)
            description = f"chat documents and reviews{f'; other files that stay: {others}' if others else ''}"
            yield _Kept(path, description, sum(map(_measure, files)), files)


def _list_documents(path: str, chat_suffixes: tuple[str, ...]) -> Iterator[str]:
    """Yield the files that thinklsp writes to a `.thinklsp` folder. Links and all other files are the user's."""
    for name, suffixes in (("chat", chat_suffixes), ("review", (_REVIEW_SUFFIX,))):
        folder = os.path.join(path, name)
        try:
            entries = () if os.path.islink(folder) else sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        files = [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]
        own = [path for path in files if path.endswith(suffixes) or _read_start(path).startswith(_CHAT_BEGIN)]
        yield from own
        # As long as files of the user are in the folder, git goes on ignoring them.
        ignore = os.path.join(folder, ".gitignore")
        if len(own) + 1 == len(entries) and ignore in files and _read_start(ignore) == _IGNORE_ALL:
            yield ignore


def _read_start(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(len(_CHAT_BEGIN))
    except OSError:
        return b""


def _measure(path: str) -> int:
    if not os.path.isdir(path) or os.path.islink(path):
        return os.lstat(path).st_size
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total
