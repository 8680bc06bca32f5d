"""The user's standing instructions for a project, as files of its folders hold them. Pure: which files there may be,
which of them say something new, and how the model is told. Reading them and asking for trust is the engine's business.

They stand at the end of a user's message, each version of a file once in a conversation: history only grows, and what a
compaction took away is told again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from thinklsp.core.messages import AssistantMessage, Conversation, TextBlock, shortened_by
from thinklsp.tools.shown import invisible, shown_name

NAMES = (("AGENTS.md",), ("CLAUDE.md",), (".github", "copilot-instructions.md"))
"""Below each folder, in the order in which they count."""

FILE_LIMIT, WHOLE_LIMIT = 24_000, 48_000
"""Characters of one file, and of all that one prompt brings."""

_DEEPEST = 32
_OPEN, _CLOSE = "<project_instructions>", "</project_instructions>"
_HEAD = (
    "The user's standing instructions for this project. Follow them in this and in later turns where they do not "
    "contradict what the user asks. Where two contradict each other, the one for the inner folder counts; what is told "
    "later replaces an earlier version of the same file."
)
_PART = re.compile(rf"(?:\n\n)?^{_OPEN}$.*?^{_CLOSE}$", re.DOTALL | re.MULTILINE)
_TOLD = re.compile(r'^<instructions file=.* digest="([0-9a-f]{16})">$', re.MULTILINE)
_OWN_TAG = re.compile(r"<(?=/?(?:project_)?instructions\b)")
# What a file says that was made for one assistant and points to another's: `@AGENTS.md`, `See @./AGENTS.md.`
_POINTER = re.compile(r"(?:(?:see|read|follow)\s+)?@(?:\./)?AGENTS\.md\.?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """`path` is what people call it, `name` its path in the folder that it is for; `folder`: the components of that
    one, the workspace's name first. Line ends of `text` are line feeds."""

    path: str
    name: str
    folder: tuple[str, ...]
    text: str

    @property
    def digest(self) -> str:
        return _sha256(self.path, self.text)[:16]

    @property
    def hidden(self) -> tuple[str, ...]:
        """Its code points that nobody would see, as `<U+202E>`: a reader cannot have agreed to what they say."""
        return invisible(self.text)


def folders_down_to(folder: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The folders that have a say about what lies in `folder`, the outermost first."""
    return tuple(tuple(folder[:depth]) for depth in range(min(len(folder), _DEEPEST) + 1))


def digest_of(files: Iterable[InstructionFile]) -> str:
    """What the user agrees to: these files with exactly this text."""
    return _sha256(*(part for file in files for part in (file.name, file.text)))


def distinct(files: Sequence[InstructionFile]) -> tuple[InstructionFile, ...]:
    """Without empty files, those that only point to an `AGENTS.md` beside them, and those that say what another one
    does whose word counts there anyway."""
    kept: list[InstructionFile] = []
    for file in files:
        text = file.text.strip()
        above = [other for other in kept if file.folder[: len(other.folder)] == other.folder]
        is_pointer = _POINTER.fullmatch(text) is not None and any(other.folder == file.folder for other in above)
        if text and not is_pointer and all(other.text.strip() != text for other in above):
            kept.append(file)
    return tuple(kept)


def told_in(conversation: Conversation) -> frozenset[str]:
    """Digests of the files whose text the model still has before it."""
    found: set[str] = set()
    for message in reversed(conversation):
        if isinstance(message, AssistantMessage):
            if shortened_by(message) is not None:
                break
            continue
        texts = (block.text for block in message.blocks if isinstance(block, TextBlock))
        found.update(digest for text in texts if text.endswith(f"\n{_CLOSE}") for digest in _TOLD.findall(text))
    return frozenset(found)


def telling(files: Sequence[InstructionFile], known: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """What the next prompt tells of them, empty where `known` holds them all; and sentences about what is left out."""
    parts: list[str] = []
    said: list[str] = []
    left = WHOLE_LIMIT
    for file in files:
        if file.digest in known:
            continue
        text = _cut(file.text.strip(), min(FILE_LIMIT, left))
        left -= len(text)
        if len(text) < len(file.text.strip()):
            what = f"only its first {len(text):,} characters are" if text else "it is not"
            said.append(f"{shown_name(file.path)} is longer than what is told of instructions: {what} followed.")
        if text:
            parts.append(_part(file, text))
    return ("\n".join((_OPEN, _HEAD, *parts, _CLOSE)) if parts else ""), tuple(said)


def without_project_instructions(prompt: str) -> str:
    return _PART.sub("", prompt)


def _sha256(*texts: str) -> str:
    digest = sha256()
    for text in texts:
        digest.update(sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def _part(file: InstructionFile, text: str) -> str:
    # Only what is told of a file ends in these tags.
    body = _OWN_TAG.sub("&lt;", text)
    return f'<instructions file={shown_name(file.path)} digest="{file.digest}">\n{body}\n</instructions>'


def _cut(text: str, size: int) -> str:
    """Whole lines, where there is more than one."""
    if len(text) <= size:
        return text
    head = text[: max(0, size)]
    return (head.rpartition("\n")[0] or head).rstrip()
