"""`permissions.toml` beside the user's file: what they allowed while working, and which folders they trust. The one
file there that the server writes, and theirs to read and change.

    [commands]
    allow = [["python", "-m", "pytest"]]
    deny = []

    [[trusted]]
    folder = "/home/me/project"
    digest = "…"

An argv that begins with exactly these words is meant by a rule; deny wins over allow.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from thinklsp.core.errors import SettingsError
from thinklsp.settings.toml_file import read_toml

_NAME = "permissions.toml"
_HEAD = "What you allowed thinklsp while working. Yours to change; deny wins over allow."

Words = tuple[str, ...]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class CommandRules(_Part):
    allow: tuple[Words, ...] = Field((), description="Beginnings of commands that run without a question.")
    deny: tuple[Words, ...] = Field((), description="Beginnings of commands that never run.")


class TrustedFolder(_Part):
    """`digest`: of the instruction files that the user agreed to; others are asked about anew."""

    folder: str
    digest: str


class Remembered(_Part):
    commands: CommandRules = CommandRules()
    trusted: tuple[TrustedFolder, ...] = ()


@dataclass(frozen=True, slots=True)
class Permissions:
    """The file at `path`, read anew each time: the user may have changed it, and another server may have written it."""

    path: str

    @staticmethod
    def beside(config: str) -> Permissions:
        """The file that belongs to the user's file at `config`."""
        return Permissions(os.path.join(os.path.dirname(config), _NAME))

    def read(self) -> Remembered:
        """Raises SettingsError where the file cannot be read, trusted or understood: nothing is allowed then."""
        raw = read_toml(self.path, _NAME)
        try:
            return Remembered.model_validate(raw)
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"])
            raise SettingsError("permissions", f"Your {_NAME} has a mistake at {place[:100]}.") from None

    def allow(self, argv: Sequence[str]) -> None:
        """Commands that begin so need no question any more. Raises SettingsError."""
        self._change(lambda now: _allowing(now, tuple(argv)))

    def trust(self, folder: str, digest: str) -> None:
        """Instruction files of this folder may be followed while their digest is this. Raises SettingsError."""
        self._change(lambda now: _trusting(now, TrustedFolder(folder=folder, digest=digest)))

    def _change(self, change: Callable[[Remembered], Remembered]) -> None:
        # What is wrong with the file is for its owner to mend: writing over it would lose their rules.
        text = _written(change(self.read()))
        temporary = f"{self.path}.{secrets.token_hex(8)}"
        try:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, self.path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise SettingsError("permissions", f"Your {_NAME} cannot be written: {error.strerror}.") from None


def _allowing(now: Remembered, argv: Words) -> Remembered:
    rules = now.commands
    if argv in rules.allow:
        return now
    return now.model_copy(update={"commands": rules.model_copy(update={"allow": (*rules.allow, argv)})})


def _trusting(now: Remembered, folder: TrustedFolder) -> Remembered:
    others = (other for other in now.trusted if other.folder != folder.folder)
    return now.model_copy(update={"trusted": (*others, folder)})


def _written(remembered: Remembered) -> str:
    document = tomlkit.document()
    document.add(tomlkit.comment(_HEAD))
    document.add("commands", tomlkit.item(remembered.commands.model_dump(mode="json")))
    document.add("trusted", tomlkit.item([folder.model_dump(mode="json") for folder in remembered.trusted]))
    return tomlkit.dumps(document)
