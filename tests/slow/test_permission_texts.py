"""A-25: the user sees what runs, literally; any other command needs a new question, in the session and in the file."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.slow.running import Tally
from tests.support.sizes import SEED, tries
from thinklsp.core.choices import ALLOW_FOR_SESSION, RUN_ONCE
from thinklsp.core.text_safety import sanitize_message
from thinklsp.engine.user_commands import UserCommands
from thinklsp.sandbox.process import CommandResult
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.settings.sources import load_user_settings
from thinklsp.tools.command import Approval
from thinklsp.tools.tool import NotPermitted
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import WorkspaceView

Words = tuple[str, ...]

# Characters that hide a part of a command or look like another one.
TRICKS = (
    *("\u202e", "\u2066", "\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u3164", "\U000e0041", "\ufe0f"),
    *("\u0430", "\u2019", "\u201c", "\u2010", "\uff0d", "\u00a0", "\u2003", "e\u0301", "é", "\u212a", "ﬁ", "\u0130"),
    *("\x7f", "\x1b[2K", "\x1b]8;;x\x07", "\r", "\n", "\t", "\v", "\x85", "\u2028", "\b\b\b"),
    *('"', "'", "\\", "\\u0041", "\\n", '" "', "' '", "`", "${x}", "$(id)", "&&", ";", "|", "#", "\n\nFolder: x"),
    *(" ", "   ", " " * 30, "a", "-", "--", "=", "/", "..", "test", "ls", "rm -rf ~", "0", "l", "1", "[x](command:y)"),
)  # fmt: skip
PROGRAMS = ("ls", "rm", "git", "pytest", "python3", "./run", "/usr/bin/env", "npm", "make", "bash", "echo")


def some_words(rng: random.Random) -> Words:
    words = ("".join(rng.choices(TRICKS, k=rng.randrange(5))) for _ in range(rng.randrange(7)))
    return (rng.choice(PROGRAMS), *words)


def changed(argv: Words, rng: random.Random) -> Words:
    words = list(argv)
    at = rng.randrange(len(words))
    match rng.randrange(8):
        case 0:
            place = rng.randrange(len(words[at]) + 1)
            words[at] = words[at][:place] + rng.choice(TRICKS) + words[at][place:]
        case 1:
            words[at:] = [" ".join(words[at:])]
        case 2:
            words[at : at + 1] = words[at].split(" ")
        case 3:
            words[at] = unicodedata.normalize(rng.choice(("NFC", "NFD", "NFKC")), words[at])
        case 4:
            words[at] = words[at].swapcase()
        case 5:
            words.append(rng.choice(("", " ", "x")))
        case 6:
            words.pop(at)
        case _:
            words[at] = words[at].strip()
    return tuple(words)


class Machine:
    def __init__(self) -> None:
        self.ran: list[Words] = []

    async def run(self, argv: Words, *_: object, **__: object) -> CommandResult:
        self.ran.append(tuple(argv))
        return CommandResult("exit", 0, b"", 0.0)


def understood(said: str) -> Words | None:
    """Read JSON texts with single spaces, on a line of their own. Return None if the question hides anything."""
    found = re.fullmatch(r"Run this command\?\n\n(.*)\n\nFolder: [^\n]*", said)
    if found is None or not found[1].isascii() or not found[1].isprintable() or "  " in found[1]:
        return None
    words, at, line = [], 0, found[1]
    while at < len(line):
        try:
            word, end = json.JSONDecoder().raw_decode(line, at)
        except ValueError:
            return None
        if line[end : end + 1] not in ("", " ") or not isinstance(word, str):
            return None
        words.append(word)
        at = end + 1
    return tuple(words)


def seen(said: str) -> Words | None:
    """Read the question as if it showed the words without quoting."""
    words = understood(said)
    if words is None:
        return None
    return tuple("".join(char for char in " ".join(words) if char.isprintable() or char == " ").split())


@dataclass
class User:
    """`reads`: how the user reads a question. `answer`: the beginning of the option that the user chooses."""

    config: Path
    granted: Callable[[], set[Approval]] = set
    reads: Callable[[str], Words | None] = understood
    answer: str = RUN_ONCE
    read: list[Words] = field(default_factory=list)

    async def asked(self, said: str, options: Sequence[str]) -> str | None:
        # The editor gets the sanitized text.
        words = self.reads(sanitize_message(said))
        if words is None:
            return None
        self.read.append(words)
        return next((option for option in options if option.startswith(self.answer)), None)

    def allows(self, words: Words) -> bool:
        """Check the file as another program reads it: the exact command, or plain words after those of a runner."""
        kept = PermissionsFile.locate_beside(str(self.config)).read().commands
        return words in kept.exact or any(
            words[: len(rule)] == rule and all(PLAIN.fullmatch(word) for word in words[len(rule) :])
            for rule in kept.allow
        )


PLAIN = re.compile(r"[A-Za-z0-9_./:=,+\[\]-]+")


async def surprises(count: int, rng: random.Random, user: User) -> AsyncIterator[tuple[list[Words], Words]]:
    """Return what ran and what should have run, for `count` commands with two variants each."""
    settings = load_user_settings({"THINKLSP_CONFIG": str(user.config)})
    overlay = EditOverlay(WorkspaceView())
    for number in range(count):
        user.answer = "Always allow" if number % 50 == 0 else (ALLOW_FOR_SESSION, RUN_ONCE)[number % 2]
        machine, agreed = Machine(), list[Words]()
        commands = UserCommands(
            machine, settings, PermissionsFile.locate_beside(settings.path), user.granted(), user.asked
        )  # type: ignore[arg-type] # It runs nothing.
        argv = some_words(rng)
        for words in (argv, changed(argv, rng), changed(argv, rng)):
            machine.ran, user.read = [], []
            with suppress(NotPermitted):
                await commands.run(words, overlay, folder=None, seconds=None)
            agreed = [*user.read, *(agreed if user.answer == ALLOW_FOR_SESSION else ())]
            if machine.ran and (machine.ran != [words] or not (words in agreed or user.allows(words))):
                yield machine.ran, words


async def test_what_is_shown_is_what_runs(tmp_path: Path, tally: Tally) -> None:
    count = tries("A-25")
    user = User(tmp_path / "config.toml")
    assert [wrong async for wrong in surprises(count, random.Random(SEED), user)] == []
    assert PermissionsFile.locate_beside(str(user.config)).read().commands.exact, "something was remembered"
    tally("A-25", count)


async def test_a_question_in_raw_words_is_found(tmp_path: Path) -> None:
    user = User(tmp_path / "config.toml", reads=seen)
    assert [wrong async for wrong in surprises(200, random.Random(SEED), user)]


class Forgiving(set[Approval]):
    """A set that accepts commands of similar look."""

    def __contains__(self, action: object) -> bool:
        assert isinstance(action, Approval)
        return any(_alike(action.argv) == _alike(known.argv) for known in self)


def _alike(argv: Words) -> str:
    return re.sub(r"\W", "", unicodedata.normalize("NFKC", " ".join(argv)).casefold())


async def test_an_approval_that_covers_what_looks_alike_is_found(tmp_path: Path) -> None:
    user = User(tmp_path / "config.toml", granted=Forgiving)
    assert [wrong async for wrong in surprises(200, random.Random(SEED), user)]
