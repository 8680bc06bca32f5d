"""The user's machine as `thinklsp setup` sees it: its folders and programs, and the places in editors' files.

A block of lines between two marks is inserted into a file of the user and taken out again, byte for byte. A file
without comments, such as JSON, gets marked entries instead. A file that is empty after a removal is deleted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import thinklsp
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import find_object
from thinklsp.settings.config_files import replace_file

_NAME = "thinklsp"
_BEGIN, _END = ">>> thinklsp setup", "<<< thinklsp setup <<<"
_SKELETON = b"{\n}\n"
_NEW_FILE_MODE = 0o600


@dataclass(frozen=True)
class Machine:
    """`server` starts the server of this installation. `files` is the folder that has one folder for each editor."""

    environ: Mapping[str, str]
    platform: str
    server: tuple[str, ...]
    files: Path

    @property
    def home(self) -> Path:
        return Path(self.environ.get("HOME") or os.path.expanduser("~"))

    @property
    def config(self) -> Path:
        return self._find_folder("XDG_CONFIG_HOME", ".config")

    @property
    def data(self) -> Path:
        return self._find_folder("XDG_DATA_HOME", ".local/share")

    @property
    def applications(self) -> Path:
        """The folder in which programs with windows keep their settings."""
        return self.home / "Library" / "Application Support" if self.platform == "darwin" else self.config

    @property
    def acp_command(self) -> tuple[str, ...]:
        """The command of the ACP agent. Its program is an absolute path, because clients may start it without PATH."""
        program = self.find_program(self.server[:1]) or self.server[0]
        return (os.path.abspath(program), *self.server[1:], "acp")

    def find_program(self, names: Sequence[str]) -> str | None:
        """Return the path of the first program that is on PATH, or that is named by an absolute path."""
        found = (shutil.which(name, path=self.environ.get("PATH")) for name in names)
        return next((path for path in found if path is not None), None)

    def _find_folder(self, variable: str, default: str) -> Path:
        value = self.environ.get(variable, "")
        # The specification says that relative paths are ignored.
        return Path(value) if os.path.isabs(value) else self.home / default


def find_editor_files() -> Path:
    """Return the folder with the editors' files: in the package, or beside it in a clone of the repository.

    Raises ThinkLspError.
    """
    package = Path(thinklsp.__file__).resolve().parent
    for folder in (package / "editors", package.parent / "editors"):
        if (folder / "neovim" / "plugin").is_dir():
            return folder
    raise ThinkLspError(f"This installation has no files for editors in {package}. Install thinklsp again.")


def find_server(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command of this installation's server: its bare name if a new shell finds this installation by it."""
    # The command that is running, or the one beside the running Python.
    running = os.path.abspath(sys.argv[0])
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), _NAME)
    candidates = [path for path in (running, beside) if os.path.basename(path) == _NAME]
    script = next((path for path in candidates if os.path.isfile(path) and os.access(path, os.X_OK)), None)
    if script is None:
        return (sys.executable, "-m", _NAME)
    # An activated environment is on PATH in this shell only.
    active = [os.path.join(environ.get(name) or os.devnull, "bin") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if folder not in ("", *active)]
    found = shutil.which(_NAME, path=os.pathsep.join(folders))
    return (_NAME,) if found is not None and os.path.realpath(found) == os.path.realpath(script) else (script,)


@dataclass(frozen=True)
class BlockPlace:
    """A file that can hold a block. `comment` begins a comment line.

    `keys` is None for a file of lines, in which the block goes to the end. For JSON with comments, it is the path of
    keys to the object of the block, which goes behind the opening brace.
    """

    path: Path
    comment: str
    keys: tuple[str, ...] | None = None

    def insert(self, data: bytes | None, lines: Sequence[str]) -> bytes:
        """Return the file's content with the block; `data` is None if there is no file. A block in `data` is replaced.

        In JSON, the lines are the members of an object, without a comma at the end. Raises ThinkLspError if the content
        is not UTF-8, or not JSON with an object at the place.
        """
        text = data or b""
        decode_text(text, self.path)
        if self.keys is not None:
            return self._insert_members(self.remove(data) or _SKELETON, self.keys, lines)
        if (span := self._find(text)) is not None:
            return text[: span[0]] + self._mark(lines) + text[span[1] :]
        if not text or text.endswith(b"\n"):
            return text + self._mark(lines) + b"\n"
        # Without a line break at its end, the file gets none behind the block either.
        return text + b"\n" + self._mark(lines)

    def remove(self, data: bytes | None) -> bytes | None:
        """Return the file's content without the block, or None if nothing else is left. Raises ThinkLspError."""
        span = None if data is None else self._find(data)
        if data is None or span is None:
            return data
        start, end = span
        is_member, is_last = self.keys is not None, end == len(data)
        end += data.startswith(b"\n", end)
        start -= (is_member or is_last) and data[:start].endswith(b"\n")
        rest = data[:start] + data[end:]
        return None if rest in (b"", _SKELETON if is_member else b"") else rest

    def read_own_text(self) -> str:
        """Return the text in the file without our block. Bytes that are not UTF-8 are replaced."""
        return (self.remove(read_file(self.path)) or b"").decode("utf-8", "replace")

    def _mark(self, lines: Iterable[str], indent: str = "") -> bytes:
        marked = [f"{self.comment} {_BEGIN} >>>", *lines, f"{self.comment} {_END}"]
        return "\n".join(indent + line for line in marked).encode()

    def _find(self, data: bytes) -> tuple[int, int] | None:
        """Return the span of the block. Raises ThinkLspError if its end mark is missing."""
        comment = re.escape(self.comment)
        begin = re.search(rf"^[ \t]*{comment} {_BEGIN}.* >>>".encode(), data, re.MULTILINE)
        if begin is None:
            return None
        end = re.compile(rf"^[ \t]*{comment} {_END}".encode(), re.MULTILINE).search(data, begin.end())
        if end is None:
            line = begin[0].decode().strip()
            raise ThinkLspError(
                f"The block of thinklsp in {self.path} has no end. Delete the block by hand from the line `{line}`."
            )
        return begin.start(), end.end()

    def _insert_members(self, data: bytes, keys: tuple[str, ...], lines: Sequence[str]) -> bytes:
        """Add the block behind the opening brace of its object. Objects that are missing become part of the block."""
        text = decode_text(data if data.strip() else _SKELETON, self.path)
        found = find_object(text, keys)
        if found is None:
            raise _explain_wrong_json(self.path)
        missing = keys[found.depth :]
        block = [f'{"    " * level}"{key}": {{' for level, key in enumerate(missing)]
        block += ["    " * len(missing) + line for line in lines]
        block += ["    " * level + "}" for level in reversed(range(len(missing)))]
        if not found.is_empty:
            block[-1] += ","
        marked = self._mark(block, "    " * (found.depth + 1))
        return text[: found.start].encode() + b"\n" + marked + b"\n" + text[found.start :].encode()


@dataclass(frozen=True)
class EntryPlace:
    """A JSON file without comments, in which `key` names an object that can hold entries of ours.

    `mark` is the path in an entry to the value that says that the entry is ours, and `writer` is this value. In a file
    of the user, the entries get lines of their own, which can be removed again byte for byte. If another program has
    written the file again in its own format, the file is formatted with an indentation of two spaces.
    """

    path: Path
    key: str
    mark: tuple[str, ...]
    writer: str

    def insert(self, data: bytes | None, entries: Mapping[str, dict[str, Any]]) -> bytes | None:
        """Return the file's content with the entries; `data` is None if there is no file. Entries of ours are replaced.

        Raises ThinkLspError if the content is not JSON with an object at the place.
        """
        value, own = self._parse(data)
        for entry in entries.values():
            *groups, last = self.mark
            place = entry
            for group in groups:
                place = place.setdefault(group, {})
            place[last] = self.writer
        wanted = {**own, **entries}
        if value.get(self.key, {}) == wanted:
            return data
        text = (self.remove(data) or b"").decode()
        return self._add_lines(text, entries, {**value, self.key: wanted})

    def remove(self, data: bytes | None) -> bytes | None:
        """Return the file's content without entries of ours, or None if nothing else is left. Raises ThinkLspError."""
        if data is None:
            return None
        value, own = self._parse(data)
        if value.get(self.key, {}) == own:
            return data
        rest = {name: each for name, each in value.items() if name != self.key}
        mark = re.escape(f"{json.dumps(self.mark[-1])}: {json.dumps(self.writer)}")
        text = re.sub(rf"\n(?:[ \t]*\"[^\n]*{mark}[^\n]*\n)+", "", data.decode(), count=1)
        is_restored = _is_json(text, {**rest, self.key: own}) or (not own and _is_json(text, rest))
        return text.encode() if is_restored else _format_json({**rest, self.key: own} if own else rest)

    def find_own_entries(self) -> Mapping[str, Any]:
        """Return the entries that are the user's own. Raises ThinkLspError."""
        return self._parse(read_file(self.path))[1]

    def _parse(self, data: bytes | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the value in the file, and the entries that are the user's own."""
        text = decode_text(data or b"", self.path)
        try:
            value = json.loads(text) if text.strip() else {}
            own = {name: entry for name, entry in value.get(self.key, {}).items() if not self._is_ours(entry)}
        except (ValueError, AttributeError):
            raise _explain_wrong_json(self.path) from None
        # Version 0.2.0 marked the whole file of Kate.
        if value.get(self.mark[-1]) == self.writer:
            del value[self.mark[-1]]
            return value, {}
        return value, own

    def _is_ours(self, entry: Any) -> bool:
        for name in self.mark:
            entry = entry.get(name) if isinstance(entry, dict) else None
        return isinstance(entry, str) and entry.startswith(self.writer)

    def _add_lines(self, text: str, entries: Mapping[str, Any], wanted: dict[str, Any]) -> bytes | None:
        """Add a line for each entry, or one for all if the file has no object for them. `wanted` is the value then."""
        found = find_object(text, (self.key,))
        if found is None:
            return _format_json(wanted)
        members = entries if found.depth else {self.key: entries}
        lines = [f"{'  ' * (found.depth + 1)}{_to_json(name)}: {_to_json(each)}" for name, each in members.items()]
        block = ",\n".join(lines) + ("" if found.is_empty else ",")
        text = f"{text[: found.start]}\n{block}\n{text[found.start :]}"
        return text.encode() if _is_json(text, wanted) else _format_json(wanted)


def _is_json(text: str, value: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(text) == value)
    except ValueError:
        return False


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _format_json(value: dict[str, Any]) -> bytes | None:
    return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n".encode() if value else None


def _explain_wrong_json(path: Path) -> ThinkLspError:
    return ThinkLspError(f"{path} is not valid JSON with an object, so nothing was changed. Check the file.")


def decode_text(data: bytes, path: Path) -> str:
    """Decode the text of a file. Raises ThinkLspError if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ThinkLspError(
            f"{path} is not encoded in UTF-8, so nothing was changed. Convert the file, then try again."
        ) from None


@dataclass(frozen=True)
class FileChange:
    """A change of one file. None as `before` or `after` means that there is no file.

    `path` is the name that the editor uses, and `target` the file behind links.
    """

    path: Path
    target: Path
    before: bytes | None
    after: bytes | None


def plan_change(path: Path, edit: Callable[[bytes | None], bytes | None]) -> tuple[FileChange, ...]:
    """Return the change that `edit` makes to the file, or nothing if the content stays the same.

    Raises ThinkLspError if the file cannot be read.
    """
    before = read_file(path)
    after = edit(before)
    if before == after:
        return ()
    # A link stays, because the user made it. If only a folder above the file is a link, the file is not a link.
    is_link = path.is_symlink()
    target = Path(os.path.realpath(path)) if is_link else path
    return (FileChange(path, target, before, b"" if after is None and is_link else after),)


def read_file(path: Path) -> bytes | None:
    """Return the content of a file, or None if there is no file. Raises ThinkLspError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ThinkLspError(f"{path} is not a regular file, so nothing was changed. Move it away, then try again.")
        return path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise ThinkLspError(
                f"{path} is a link to {os.readlink(path)}, which does not exist. Delete the link."
            ) from None
        return None
    except OSError as error:
        raise ThinkLspError(f"Cannot read {path}: {error.strerror}. Nothing was changed.") from None


def check_writable(changes: Sequence[FileChange]) -> None:
    """Check the files before the first change. Raises ThinkLspError if one is read-only or cannot be created."""
    for change in changes:
        existing = change.target
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        # The superuser may write anything, so the mode is checked, too. A rename could replace a read-only file.
        is_locked = existing == change.target and not os.stat(existing).st_mode & 0o222
        if is_locked or not os.access(existing, os.W_OK):
            raise ThinkLspError(
                f"{change.path if existing == change.target else existing} is read-only, so nothing was changed. Make "
                "it writable, or copy the lines that `--print` shows to your configuration."
            )


def apply_changes(changes: Sequence[FileChange]) -> None:
    """Write the changes. Raises ThinkLspError, also if a file has changed since the change was planned."""
    for change in changes:
        if read_file(change.path) != change.before:
            raise ThinkLspError(f"{change.path} has changed in the meantime, so it was not changed. Try again.")
        target, mode = change.target, _NEW_FILE_MODE
        try:
            if change.after is None:
                target.unlink(missing_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                mode = stat.S_IMODE(os.stat(target).st_mode)
            replace_file(str(target), change.after, mode)
        except OSError as error:
            raise ThinkLspError(f"Cannot write {error.filename or change.path}: {error.strerror}.") from None
