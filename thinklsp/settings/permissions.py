"""`permissions.toml` beside the user's file: what they allowed while working, and which folders they trust. The one
file there that the server writes, and theirs to read and change: their comments stay.

    [commands]
    allow = [["python", "-m", "pytest"]]
    deny = []
    exact = [["ls", "-l"]]

    [[trusted]]
    folder = "/home/me/project"
    digest = "…"

An argv that begins with exactly these words is meant by a rule, `exact` by nothing more than them; deny wins.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import tomlkit
from pydantic import BaseModel, ConfigDict, ValidationError
from tomlkit.exceptions import TOMLKitError

from thinklsp.core.errors import SettingsError
from thinklsp.settings.own_folder import make_private
from thinklsp.settings.toml_file import read_text, read_toml
from thinklsp.settings.user_file import CommandRules

if sys.platform != "win32":
    import fcntl

_NAME = "permissions.toml"
_HEAD = "What you allowed thinklsp while working. Yours to change; deny wins over allow."
_LOCK_PAUSE = 0.02

Document = tomlkit.TOMLDocument


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TrustedFolder(_Part):
    """`digest`: of the instruction files that the user agreed to; others are asked about anew."""

    folder: str
    digest: str


class Remembered(_Part):
    commands: CommandRules = CommandRules()
    trusted: tuple[TrustedFolder, ...] = ()


@dataclass(frozen=True, slots=True)
class Permissions:
    """The file at `path`, read anew each time: the user may have changed it, and another server may have written it.
    `patience`: seconds to wait for a server that writes just now."""

    path: str
    patience: float = 5.0

    @staticmethod
    def beside(config: str) -> Permissions:
        """The file that belongs to the user's file at `config`."""
        return Permissions(os.path.join(os.path.dirname(config), _NAME))

    def read(self) -> Remembered:
        """Raises SettingsError where the file cannot be read, trusted or understood: nothing is allowed then."""
        return _checked(read_toml(self.path, _NAME))

    def allow(self, argv: Sequence[str]) -> None:
        """Commands that begin so need no question any more. Raises SettingsError."""
        self._change(lambda document: _allow(document, "allow", argv))

    def allow_exactly(self, argv: Sequence[str]) -> None:
        """This command needs no question any more. Raises SettingsError."""
        self._change(lambda document: _allow(document, "exact", argv))

    def trust(self, folder: str, digest: str) -> None:
        """Instruction files of this folder may be followed while their digest is this. Raises SettingsError."""
        self._change(lambda document: _trust(document, folder, digest))

    def _change(self, change: Callable[[Document], None]) -> None:
        # The file itself and not a link to it: dotfiles are often kept that way.
        path = os.path.realpath(self.path)
        folder = os.path.dirname(path)
        try:
            make_private(folder)
            with _alone(folder, self.patience):
                _replace(path, _changed(read_text(path, _NAME), change))
        except OSError as error:
            raise SettingsError("permissions", f"Your {_NAME} cannot be written: {error.strerror}.") from None


def _checked(raw: Any) -> Remembered:
    try:
        return Remembered.model_validate(raw)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"])
        raise SettingsError("permissions", f"Your {_NAME} has a mistake at {place[:100]}.") from None


def _changed(text: str, change: Callable[[Document], None]) -> str:
    try:
        # What is wrong with the file is for its owner to mend: writing over it would lose their rules.
        _checked(tomllib.loads(text))
        document = tomlkit.parse(text or f"# {_HEAD}\n")
        change(document)
        changed = tomlkit.dumps(document)
        _checked(tomllib.loads(changed))
    except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, AttributeError):
        raise SettingsError("permissions", f"Your {_NAME} cannot be added to; mend it first.") from None
    return changed


def _allow(document: Document, kind: str, argv: Sequence[str]) -> None:
    commands = document.setdefault("commands", tomlkit.table())
    rules = commands.setdefault(kind, tomlkit.array())
    if list(argv) not in rules.unwrap():
        rules.append(list(argv))


def _trust(document: Document, folder: str, digest: str) -> None:
    trusted = document.setdefault("trusted", tomlkit.aot())
    known = next((entry for entry in trusted if entry["folder"] == folder), None)
    if known is not None:
        known["digest"] = digest
        return
    entry = tomlkit.inline_table() if isinstance(trusted, tomlkit.items.Array) else tomlkit.table()
    entry.update({"folder": folder, "digest": digest})
    trusted.append(entry)


@contextmanager
def _alone(folder: str, patience: float) -> Iterator[None]:
    """Other servers wait meanwhile. The folder itself is locked, so that no file is left behind."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(_LOCK_PAUSE)
        yield
    finally:
        os.close(descriptor)


def _replace(path: str, text: str) -> None:
    temporary = f"{path}.{secrets.token_hex(8)}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
