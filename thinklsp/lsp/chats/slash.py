"""The slash commands of chat documents: what there is, and which of it a prompt asks for. Runs nothing.

A command is a line that begins with `/`, outside of code fences. What only looks like one, as a path does, is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from thinklsp.core.choices import EFFORT_SETTINGS, THINKING_MODES
from thinklsp.core.lines import split_lines
from thinklsp.lsp.chats.chat_outline import outside_fences

Argument = Literal["none", "word", "thinking", "text"]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """`argument`: what may stand behind the name; it can always be left out. `values` complete it."""

    name: str
    argument: Argument
    usage: str
    about: str
    values: tuple[str, ...] = ()


SLASH_COMMANDS = (
    SlashCommand(
        "effort",
        "word",
        "/effort [level]",
        "how hard the model tries",
        EFFORT_SETTINGS,
    ),
    SlashCommand(
        "think",
        "thinking",
        "/think [off|normal|ultra|adaptive|manual N]",
        "how the model thinks; N is a budget in tokens",
        THINKING_MODES,
    ),
    SlashCommand("model", "word", "/model [id]", "which model answers; `auto` takes your choice back"),
    SlashCommand("compact", "text", "/compact [instructions]", "shortens the conversation and keeps its thread"),
    SlashCommand("restore", "word", "/restore [archive]", "undoes a compaction or a repair, by default the newest"),
    SlashCommand("clear", "none", "/clear", "begins a new session in this document"),
    SlashCommand("usage", "none", "/usage", "what this session has used"),
    SlashCommand("sessions", "none", "/sessions", "the sessions of this workspace"),
    SlashCommand("undo", "none", "/undo", "takes back what the latest turn of this session changed"),
    SlashCommand("help", "none", "/help", "this list"),
)
_BY_NAME = {command.name: command for command in SLASH_COMMANDS}

_AS_TEXT = "Begin the line with a space to send it as text."
# `/etc/hosts`, `//` and `/v1` are none: a command is letters, and then nothing or a blank.
_LINE = re.compile(r"/(?P<name>[A-Za-z]+(?:-[A-Za-z]+)*)(?:[ \t]+(?P<argument>.*?))?[ \t]*")
_THINKING = re.compile(r"\S+|manual[ \t]+-?\d{1,9}", re.ASCII)
_FORMS: dict[Argument, re.Pattern[str]] = {
    "none": re.compile(r"(?!)"),
    "word": re.compile(r"\S+"),
    "thinking": _THINKING,
    "text": re.compile(r".+"),
}
_LONGEST_ECHO = 40


@dataclass(frozen=True, slots=True)
class Invocation:
    """One command of a prompt. `argument` is empty where none was given."""

    command: SlashCommand
    argument: str


@dataclass(frozen=True, slots=True)
class Slashed:
    """A prompt taken apart. `problems` are sentences about lines that are commands and cannot be run; then none is.
    `rest` is what is left to be sent, as it was written."""

    invocations: tuple[Invocation, ...]
    problems: tuple[str, ...]
    rest: str

    def __bool__(self) -> bool:
        return bool(self.invocations or self.problems)


def taken_apart(prompt: str) -> Slashed:
    lines = split_lines(prompt)
    invocations: list[Invocation] = []
    problems: list[str] = []
    taken: set[int] = set()
    for number, body in outside_fences([line.rstrip("\r\n") for line in lines]):
        if (match := _LINE.fullmatch(body)) is None:
            continue
        taken.add(number)
        found = _invocation(match["name"], match["argument"] or "")
        if isinstance(found, str):
            problems.append(found)
        else:
            invocations.append(found)
    if not taken:
        return Slashed((), (), prompt)
    return Slashed(tuple(invocations), tuple(problems), _rest(lines, taken))


def described() -> str:
    """The list that `/help` answers with, as Markdown."""
    return "\n".join(f"- `{command.usage}`: {command.about}" for command in SLASH_COMMANDS)


def _invocation(name: str, argument: str) -> Invocation | str:
    """The command, or a sentence why it is none."""
    command = _BY_NAME.get(name.lower())
    if command is None:
        return f"There is no command `/{name[:_LONGEST_ECHO]}`. {_AS_TEXT}"
    if argument and _FORMS[command.argument].fullmatch(argument) is None:
        takes = "takes nothing behind it" if command.argument == "none" else f"is written `{command.usage}`"
        return f"`/{command.name}` {takes}. {_AS_TEXT}"
    return Invocation(command, argument)


def _rest(lines: Sequence[str], taken: set[int]) -> str:
    """Without the commands and the blank lines around what is left."""
    left = [line for number, line in enumerate(lines) if number not in taken]
    while left and not left[0].strip():
        del left[0]
    while left and not left[-1].strip():
        del left[-1]
    return "".join(left).rstrip("\r\n")
