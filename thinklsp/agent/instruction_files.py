"""Instruction files, which contain the user's instructions for a project.

The pure functions in this module remove duplicate files and format the files for prompts. Each version of a file is
sent to the model once per conversation, at the end of a user message. After a compaction, instructions are sent again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from thinklsp.core.messages import AssistantMessage, Conversation, TextBlock, find_compaction_origin
from thinklsp.core.text_safety import find_invisible, format_path

INSTRUCTION_FILE_NAMES = (("AGENTS.md",), ("CLAUDE.md",), (".github", "copilot-instructions.md"))
"""The names of the instruction files in a folder, in order of precedence."""

MAX_FILE_CHARACTERS, MAX_PROMPT_CHARACTERS = 24_000, 48_000
"""The maximum number of characters in a file, and in all instructions of a prompt."""

_MAX_DEPTH = 32
_OPENING_TAG, _CLOSING_TAG = "<project_instructions>", "</project_instructions>"
_INTRODUCTION = (
    "The user's standing instructions for this project. Follow them in this and in later turns unless they contradict "
    "the user's prompt. If two files contradict each other, the file of the inner folder takes precedence; a later "
    "version replaces an earlier version of the same file."
)
_INSTRUCTIONS_PATTERN = re.compile(rf"(?:\n\n)?^{_OPENING_TAG}$.*?^{_CLOSING_TAG}$", re.DOTALL | re.MULTILINE)
_DIGEST_PATTERN = re.compile(r'^<instructions file=.* digest="([0-9a-f]{16})">$', re.MULTILINE)
_TAG_PATTERN = re.compile(r"<(?=/?(?:project_)?instructions\b)")
# A file for another assistant often contains only a reference such as `@AGENTS.md` or `See @./AGENTS.md.`
_REFERENCE_PATTERN = re.compile(r"(?:(?:see|read|follow)\s+)?@(?:\./)?AGENTS\.md\.?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """An instruction file.

    `path` is the display path. `name` is the path relative to `folder`, the folder to which the instructions apply.
    `folder` is a tuple of path components that starts with the workspace name. `text` uses line feeds as line endings.
    """

    path: str
    name: str
    folder: tuple[str, ...]
    text: str

    @property
    def digest(self) -> str:
        return _compute_sha256(self.path, self.text)[:16]

    @property
    def invisible_characters(self) -> tuple[str, ...]:
        """The invisible code points in the text, for example `<U+202E>`.

        A file with invisible text is rejected, because the user cannot read the text before trusting the file.
        """
        return find_invisible(self.text)


def list_enclosing_folders(folder: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the folders whose instructions apply to files in `folder`, outermost first."""
    return tuple(tuple(folder[:depth]) for depth in range(min(len(folder), _MAX_DEPTH) + 1))


def compute_digest(files: Iterable[InstructionFile]) -> str:
    """Return a digest of the files' names and contents. The user's trust applies only to this digest."""
    return _compute_sha256(*(part for file in files for part in (file.name, file.text)))


def remove_redundant(files: Sequence[InstructionFile]) -> tuple[InstructionFile, ...]:
    """Return the files that are not redundant.

    A file is redundant if it is empty, only refers to an `AGENTS.md` in the same folder, or repeats the text of a file
    that already applies.
    """
    distinct_files: list[InstructionFile] = []
    for file in files:
        text = file.text.strip()
        above = [other for other in distinct_files if file.folder[: len(other.folder)] == other.folder]
        is_pointer = _REFERENCE_PATTERN.fullmatch(text) is not None and any(
            other.folder == file.folder for other in above
        )
        if text and not is_pointer and all(other.text.strip() != text for other in above):
            distinct_files.append(file)
    return tuple(distinct_files)


def find_sent_digests(conversation: Conversation) -> frozenset[str]:
    """Return the digests of the instruction files that the model can still read in the conversation."""
    digests: set[str] = set()
    for message in reversed(conversation):
        if isinstance(message, AssistantMessage):
            if find_compaction_origin(message) is not None:
                break
            continue
        texts = (block.text for block in message.blocks if isinstance(block, TextBlock))
        digests.update(
            digest for text in texts if text.endswith(f"\n{_CLOSING_TAG}") for digest in _DIGEST_PATTERN.findall(text)
        )
    return frozenset(digests)


def build_instructions(files: Sequence[InstructionFile], sent_digests: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """Return the instructions for the next prompt, and warnings about truncated files.

    Files in `sent_digests` are skipped. If no files remain, the instructions are empty.
    """
    parts: list[str] = []
    warnings: list[str] = []
    left = MAX_PROMPT_CHARACTERS
    for file in files:
        if file.digest in sent_digests:
            continue
        text = _truncate_at_line(file.text.strip(), min(MAX_FILE_CHARACTERS, left))
        left -= len(text)
        if len(text) < len(file.text.strip()):
            followed = f"only its first {len(text):,} characters are" if text else "it is not"
            warnings.append(f"{format_path(file.path)} exceeds the size limit for instructions: {followed} followed.")
        if text:
            parts.append(_format_file(file, text))
    return ("\n".join((_OPENING_TAG, _INTRODUCTION, *parts, _CLOSING_TAG)) if parts else ""), tuple(warnings)


def remove_project_instructions(prompt: str) -> str:
    return _INSTRUCTIONS_PATTERN.sub("", prompt)


def _compute_sha256(*texts: str) -> str:
    digest = sha256()
    for text in texts:
        digest.update(sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def _format_file(file: InstructionFile, text: str) -> str:
    # Escape tags in the file's text, so that the text cannot close its enclosing element.
    body = _TAG_PATTERN.sub("&lt;", text)
    return f'<instructions file={format_path(file.path)} digest="{file.digest}">\n{body}\n</instructions>'


def _truncate_at_line(text: str, max_characters: int) -> str:
    """Truncate the text, at the end of a line if possible."""
    if len(text) <= max_characters:
        return text
    head = text[: max(0, max_characters)]
    return (head.rpartition("\n")[0] or head).rstrip()
