"""The syntax of prompts: mentions such as `@path:10-20`, slash commands, and the note of an instruction in a comment.

A command is a line outside code fences that begins with `/` and a name. Other lines that begin with a slash, such as
paths, are ordinary text. A line with `/skill:NAME` runs nothing: it adds a skill to the prompt, and the words after the
name stay in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from thinklsp.core.choices import EFFORT_SETTINGS, THINKING_MODES
from thinklsp.core.errors import TurnRefused
from thinklsp.core.lines import split_lines
from thinklsp.core.markdown import filter_outside_fences

SPECIAL_MENTIONS = ("selection", "diagnostics")
"""The mentions that are not files."""

_REFERENCE = re.compile(
    r"""(?<![\w@])@(?:"(?P<quoted>(?:[^"\\\n\r]|\\.)+)"|(?P<bare>[^\s:@"]+))"""
    r"(?::L?(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?)?"
)
_ESCAPED = re.compile(r"""\\(["\\])""")


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention in a prompt, such as `@path` or `@path:10-20`.

    Lines are numbered from 1. `text` is the mention as written. A quoted mention (`is_quoted`) always names a file.
    """

    path: str
    lines: tuple[int, int] | None
    text: str = field(default="", compare=False)
    is_quoted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class NameList:
    """The file paths for completion. `complete` is False if there may be more files."""

    paths: Sequence[str] = ()
    complete: bool = True


def find_mentions(prompt: str) -> tuple[Mention, ...]:
    """Return the files that the prompt mentions, without duplicates."""
    return tuple(dict.fromkeys(mention for mention in _parse_mentions(prompt) if not _is_special(mention)))


def find_special_mentions(prompt: str) -> tuple[str, ...]:
    """Return the special mentions in the prompt, such as `selection`, without duplicates."""
    return tuple(dict.fromkeys(mention.path for mention in _parse_mentions(prompt) if _is_special(mention)))


def shorten_mentions(text: str) -> str:
    """Replace each mention of a file with the file's name, and remove special mentions, which mean nothing later."""

    def shorten(match: re.Match[str]) -> str:
        mention = _build_mention(match)
        if mention is None:
            return match[0]
        name = "" if _is_special(mention) else mention.path.rstrip("/").rpartition("/")[2]
        return name + match[0][len(mention.text) :]

    return _REFERENCE.sub(shorten, text)


def write_mention(path: str, lines: tuple[int, int] | None = None) -> str:
    """Format a mention of a path and its lines, quoting the path if necessary."""
    text = f"@{path}"
    parsed = [(mention.path, mention.text) for mention in find_mentions(text)]
    if parsed != [(path, text)]:
        quoted = path.replace("\\", "\\\\").replace('"', '\\"')
        text = f'@"{quoted}"'
    return text if lines is None else f"{text}:{lines[0]}-{lines[1]}"


def can_be_mentioned(path: str) -> bool:
    """Return True if a mention can name the path. A path that contains a line ending cannot be mentioned."""
    return [mention.path for mention in find_mentions(write_mention(path))] == [path]


def _is_special(mention: Mention) -> bool:
    return mention.path in SPECIAL_MENTIONS and not mention.is_quoted


def _parse_mentions(prompt: str) -> Iterator[Mention]:
    return filter(None, map(_build_mention, _REFERENCE.finditer(prompt)))


def _build_mention(match: re.Match[str]) -> Mention | None:
    """Return the mention that the pattern has found, or None if it contains only punctuation."""
    quoted, bare = match["quoted"], match["bare"]
    path = bare.rstrip(".,;!?)") if quoted is None else _ESCAPED.sub(r"\1", quoted)
    first = int(match["first"]) if match["first"] else None
    last = int(match["last"]) if match["last"] else first
    lines = None if first is None or last is None else (first, last)
    text = match[0] if lines is not None or quoted is not None else f"@{path}"
    return Mention(path, lines, text, quoted is not None) if path else None


ArgumentKind = Literal["none", "word", "thinking", "text", "skill"]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command. Every argument is optional.

    `argument` is the kind of argument that the command accepts. Completion offers `values`.
    """

    name: str
    argument: ArgumentKind
    usage: str
    description: str
    values: tuple[str, ...] = ()


SLASH_COMMANDS = (
    SlashCommand(
        "effort",
        "word",
        "/effort [level]",
        "sets or shows the reasoning effort",
        EFFORT_SETTINGS,
    ),
    SlashCommand(
        "think",
        "thinking",
        "/think [off|normal|ultra|adaptive|manual N]",
        "sets or shows the thinking mode; N is a budget in tokens",
        THINKING_MODES,
    ),
    SlashCommand("model", "word", "/model [id]", "sets or shows the model; `auto` restores the default"),
    SlashCommand("compact", "text", "/compact [instructions]", "compacts the conversation"),
    SlashCommand("restore", "word", "/restore [archive]", "undoes a compaction or a repair, by default the newest"),
    SlashCommand("clear", "none", "/clear", "starts a new session in this document"),
    SlashCommand("usage", "none", "/usage", "shows this session's tokens and cost"),
    SlashCommand("sessions", "none", "/sessions", "lists this workspace's sessions"),
    SlashCommand("undo", "none", "/undo", "undoes the edits of this session's latest turn"),
    SlashCommand("skill", "skill", "/skill:NAME [words]", "follows a skill in this prompt"),
    SlashCommand("help", "none", "/help", "shows this list"),
)
_BY_NAME = {command.name: command for command in SLASH_COMMANDS}

_AS_TEXT_HINT = "To send the line as text, begin the line with a space."
# A command is a slash and letters, followed by a space or the end of the line. `/etc/hosts` and `/v1` are ordinary
# text.
_LINE = re.compile(r"/(?P<name>[A-Za-z]+(?:-[A-Za-z]+)*)(?:[ \t]+(?P<argument>[^ \t].*))?")
_SKILL_LINE = re.compile(r"/skill:(?P<name>\S*)(?:[ \t]+(?P<words>[^ \t].*))?", re.IGNORECASE)
_SKILL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_SKILL_NAME_CHARACTERS = 64
_MAX_SKILLS = 4
_THINKING = re.compile(r"\S+|manual[ \t]+-?\d{1,9}", re.ASCII)
_ARGUMENT_PATTERNS: dict[ArgumentKind, re.Pattern[str]] = {
    "none": re.compile(r"(?!)"),
    "word": re.compile(r"\S+"),
    "thinking": _THINKING,
    "text": re.compile(r".+"),
    "skill": re.compile(r"(?!)"),
}
_MAX_ECHO_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Invocation:
    """A slash command in a prompt. `argument` is empty if the user gave no argument."""

    command: SlashCommand
    argument: str


@dataclass(frozen=True, slots=True)
class ParsedPrompt:
    """A prompt split into slash commands, skills and text. `remaining_prompt` is the text to send, unchanged.

    `problems` contains messages about invalid commands. If it is not empty, no command runs. `skills` contains the
    names of the skills that the prompt chooses. `unsent_prompt` is the text to offer again if it could not be sent: the
    remaining prompt with the lines that choose skills.
    """

    invocations: tuple[Invocation, ...]
    problems: tuple[str, ...]
    remaining_prompt: str
    skills: tuple[str, ...] = ()
    unsent_prompt: str = ""

    def __bool__(self) -> bool:
        return bool(self.invocations or self.problems)

    def format_skipped(self, run_count: int) -> str:
        """Return a sentence that names the commands after the first `run_count`, or an empty string."""
        names = ", ".join(f"`/{skipped.command.name}`" for skipped in self.invocations[run_count:])
        return f"Not run: {names}." if names else ""


def parse_slash_commands(prompt: str) -> ParsedPrompt:
    """Find the slash commands and the chosen skills in a prompt."""
    return _parse(prompt, finds_commands=True)


def split_skills(prompt: str) -> tuple[str, tuple[str, ...]]:
    """Return a prompt and the names of the skills that it chooses. Slash commands in it are ordinary text.

    Raises TurnRefused if a line chooses a skill by an impossible name.
    """
    parsed = _parse(prompt, finds_commands=False)
    if parsed.problems:
        raise TurnRefused(parsed.problems[0])
    return parsed.remaining_prompt, parsed.skills


def _parse(prompt: str, *, finds_commands: bool) -> ParsedPrompt:
    lines = split_lines(prompt)
    remaining, unsent = list(lines), list(lines)
    found: list[Invocation | str] = []
    skills: dict[str, str] = {}
    for number, body in filter_outside_fences([line.rstrip("\r\n") for line in lines]):
        # Trailing spaces are removed first, because a pattern that skips them would be slow on a long run of spaces.
        command = body.rstrip(" \t") if body.startswith("/") else ""
        if (skill := _SKILL_LINE.fullmatch(command)) is not None:
            skills[skill["name"].lower()] = skill["name"]
            remaining[number] = f"{skill['words']}{lines[number][len(body) :]}" if skill["words"] else ""
        elif finds_commands and (match := _LINE.fullmatch(command)) is not None:
            remaining[number] = unsent[number] = ""
            found.append(_parse_invocation(match["name"], match["argument"] or ""))
    if not found and not skills:
        return ParsedPrompt((), (), prompt, (), prompt)
    problems = [each for each in found if isinstance(each, str)] + _check_skills(skills)
    text = _join_lines(remaining) or _ask_for_skills(skills)
    invocations = tuple(each for each in found if isinstance(each, Invocation))
    return ParsedPrompt(invocations, tuple(problems), text, tuple(skills), _join_lines(unsent))


def _ask_for_skills(names: Iterable[str]) -> str:
    """Return the prompt of a user who chose skills and wrote nothing else."""
    words = " and ".join(f"`{name}`" for name in names)
    return f"Follow {words}." if words else ""


def format_help(commands: Iterable[SlashCommand] = SLASH_COMMANDS) -> str:
    """Format the Markdown list of commands that `/help` shows."""
    return "\n".join(f"- `{command.usage}`: {command.description}" for command in commands)


def _parse_invocation(name: str, argument: str) -> Invocation | str:
    """Return the parsed command, or an error message if the command is invalid."""
    command = _BY_NAME.get(name.lower())
    if command is None:
        return f"There is no command `/{name[:_MAX_ECHO_CHARACTERS]}`. {_AS_TEXT_HINT}"
    if (argument or command.argument == "skill") and not _ARGUMENT_PATTERNS[command.argument].fullmatch(argument):
        problem = "takes no argument" if command.argument == "none" else f"must be written as `{command.usage}`"
        return f"`/{command.name}` {problem}. {_AS_TEXT_HINT}"
    return Invocation(command, argument)


def _check_skills(skills: Mapping[str, str]) -> list[str]:
    """Return an error message for each name that cannot be the name of a skill. The values are the names as typed."""
    problems = [
        f"`/skill:{typed[:_MAX_ECHO_CHARACTERS]}` does not name a skill. Names consist of lowercase letters, digits "
        f"and hyphens, as in `/skill:code-review`. {_AS_TEXT_HINT}"
        for name, typed in skills.items()
        if len(name) > _MAX_SKILL_NAME_CHARACTERS or _SKILL_NAME.fullmatch(name) is None
    ]
    if len(skills) > _MAX_SKILLS:
        return [f"A prompt can follow at most {_MAX_SKILLS} skills, not {len(skills)}. Remove some `/skill:` lines."]
    return problems


def _join_lines(lines: Iterable[str]) -> str:
    """Return the lines of a prompt without surrounding blank lines. Removed lines are empty strings."""
    remaining = [line for line in lines if line]
    while remaining and not remaining[0].strip():
        del remaining[0]
    while remaining and not remaining[-1].strip():
        del remaining[-1]
    return "".join(remaining).rstrip("\r\n")


COMMENT_NOTE = (
    "\n\n(This instruction comes from a comment in the document. Remove the comment, including the mark AI!, as part "
    "of the change.)"
)


def remove_comment_note(instruction: str) -> str:
    """Return the user's own words of an instruction."""
    return instruction.removesuffix(COMMENT_NOTE)
