"""Conversation messages, which consist of blocks, and the model's knowledge of files that the blocks carry.

A block has provider-independent fields and `raw`, the provider's opaque JSON. Only this provider's encoder and the
session store may read `raw`. Requests to the same provider contain `raw`. Requests to other providers are built from
the provider-independent fields and omit blocks that cannot be built.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, Generic, Literal, NoReturn, TypeVar, assert_never
from weakref import ref

Value = TypeVar("Value")


class IdentityMemo(Generic[Value]):
    """A cache of values that pure functions derive from immutable objects. An object's value is freed with the object.

    Objects are compared by identity, not by equality. A value must not refer to its object, because the object is then
    never freed.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[Any], Value]] = {}

    def find(self, item: object) -> Value | None:
        """Return the object's stored value, or None if there is no stored value."""
        entry = self._entries.get(id(item))
        return None if entry is None else entry[1]

    def store(self, item: object, value: Value) -> Value:
        """Store a value for the object, replacing any earlier value, and return the value."""
        # The entry of a freed object is deleted, because a new object may get the same `id()`.
        self._entries[id(item)] = ref(item, partial(self._entries.pop, id(item))), value
        return value


_DIGEST_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class FileSight:
    """The knowledge of a file that a block gives the model. `digest` is None for a missing file.

    `key` identifies the file. `is_whole` is true if the model knows the whole text, and `is_own` if the model wrote it.
    """

    key: str
    digest: str | None
    is_whole: bool = False
    is_own: bool = False

    def join(self, other: FileSight) -> FileSight:
        """Return the knowledge from two blocks about the same text."""
        return FileSight(self.key, self.digest, self.is_whole or other.is_whole, self.is_own or other.is_own)


def describe_text(key: str, text: str | None, *, is_whole: bool = False, is_own: bool = False) -> FileSight:
    """Return the knowledge of a file with this text, or of a missing file if the text is None."""
    return FileSight(key, compute_digest(text), is_whole, is_own)


def compute_digest(text: str | None) -> str | None:
    """Return the digest of a text, or None for a missing file.

    Line endings and a byte order mark do not count, because they are not shown and `write_file` keeps them.
    """
    if text is None:
        return None
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]


StopReason = Literal[
    "end_turn",
    "tool_use",
    "max_tokens",
    "stop_sequence",
    "pause_turn",
    "refusal",
    "context_window",
    "other",
]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a block. Opaque state is sent back only to the same provider, model, host and key.

    `host` is the scheme and authority of the base URL. `key` is a digest of the API key, never the key itself.
    """

    provider: str
    model: str
    host: str
    key: str


class OpaqueState:
    """A provider's raw JSON, which may contain signatures or encrypted thinking, protected against accidental display.

    Objects of this class cannot be printed, pickled or encoded as JSON. The content is available only from
    `reveal_for`, which requires the block's origin.
    """

    __slots__ = ("_origin", "_text")

    def __init__(self, text: str, origin: Origin) -> None:
        self._text = text
        self._origin = origin

    @property
    def origin(self) -> Origin:
        return self._origin

    def is_issued_by(self, origin: Origin) -> bool:
        # Origins are usually one object, and the comparison of two objects is slow.
        return self._origin is origin or self._origin == origin

    def reveal_for(self, origin: Origin) -> str:
        """Return the JSON text as received. Raise ValueError unless `origin` matches the block's origin."""
        if origin != self._origin:
            raise ValueError("opaque state can be revealed only for its own origin")
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueState) and (self._text, self._origin) == (other._text, other._origin)

    def __hash__(self) -> int:
        return hash((self._text, self._origin))

    def __repr__(self) -> str:
        return "<opaque>"

    def __str__(self) -> NoReturn:
        raise TypeError("opaque state has no text form")

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("opaque state has no text form")

    def __reduce__(self) -> NoReturn:
        raise TypeError("opaque state cannot be pickled")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ConversationPart:
    """A message or a block. Values derived from the object can be stored in an `IdentityMemo`."""


@dataclass(frozen=True, slots=True)
class UserPrompt:
    """The user's own words, and the id of the turn that they were sent for."""

    words: str
    turn_id: str = ""


@dataclass(frozen=True, slots=True)
class TextBlock(ConversationPart):
    """A text block. `raw` is None if the provider sent only the text.

    `prompt` is set if the text was built from a user's prompt. `prompt` and `sight` are stored, but never sent to a
    provider.
    """

    text: str
    raw: OpaqueState | None = None
    kind: Literal["text"] = "text"
    prompt: UserPrompt | None = field(default=None, compare=False)
    sight: tuple[FileSight, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ThinkingBlock(ConversationPart):
    """A thinking block. `text` is the readable summary, which is often empty. `raw` contains the signature."""

    text: str
    raw: OpaqueState | None = None
    kind: Literal["thinking"] = "thinking"


@dataclass(frozen=True, slots=True)
class RedactedThinkingBlock(ConversationPart):
    raw: OpaqueState
    kind: Literal["redacted_thinking"] = "redacted_thinking"


@dataclass(frozen=True, slots=True)
class ToolUseBlock(ConversationPart):
    """A tool call by the model. `input` is None if the arguments are not a valid JSON object."""

    id: str
    name: str
    input: Mapping[str, Any] | None = field(hash=False)
    raw: OpaqueState | None = None
    kind: Literal["tool_use"] = "tool_use"


@dataclass(frozen=True, slots=True)
class ServerToolBlock(ConversationPart):
    """A tool call that the provider executes, or the result of such a call. thinklsp sends the block back unchanged."""

    name: str
    raw: OpaqueState
    kind: Literal["server_tool"] = "server_tool"


@dataclass(frozen=True, slots=True)
class OpaqueBlock(ConversationPart):
    """A block of an unsupported type. thinklsp sends the block back to its origin unchanged."""

    type: str
    raw: OpaqueState
    kind: Literal["opaque"] = "opaque"


@dataclass(frozen=True, slots=True)
class ToolResultBlock(ConversationPart):
    """The result of a tool call, as plain text. `sight` is stored, but never sent to a provider."""

    tool_use_id: str
    text: str
    is_error: bool = False
    kind: Literal["tool_result"] = "tool_result"
    sight: tuple[FileSight, ...] = field(default=(), compare=False)


ImageType = Literal["image/png", "image/jpeg", "image/webp", "image/gif"]


@dataclass(frozen=True, slots=True)
class ImageBlock(ConversationPart):
    """An image in a user message. `digest` is the SHA-256 of the file's bytes, which `parse_image` has checked.

    `name` identifies the image in texts. `width` and `height` are in pixels.
    """

    media_type: ImageType
    data: bytes = field(repr=False, compare=False)
    digest: str
    name: str
    width: int
    height: int
    kind: Literal["image"] = "image"


ContentBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ServerToolBlock | OpaqueBlock
UserBlock = ToolResultBlock | TextBlock | ImageBlock


@dataclass(frozen=True, slots=True)
class UserMessage(ConversationPart):
    """A message with the user role. Tool results must precede other blocks, because providers reject any other order.

    The images of a prompt precede its text.
    """

    blocks: tuple[UserBlock, ...]
    role: Literal["user"] = "user"

    @staticmethod
    def from_text(text: str) -> UserMessage:
        return UserMessage((TextBlock(text),))

    @property
    def images(self) -> tuple[ImageBlock, ...]:
        return tuple(block for block in self.blocks if isinstance(block, ImageBlock))

    @property
    def result_images(self) -> tuple[ImageBlock, ...]:
        """The images that tools returned. They precede the results, and images of prompts follow the results."""
        images = tuple(takewhile(lambda block: isinstance(block, ImageBlock), self.blocks))
        follows = self.blocks[len(images) : len(images) + 1]
        if not any(isinstance(block, ToolResultBlock) for block in follows):
            return ()
        return tuple(block for block in images if isinstance(block, ImageBlock))

    @property
    def prompts(self) -> tuple[UserPrompt, ...]:
        """The user's prompts in this message. A prompt that joined a running turn follows tool results."""
        prompts = (block.prompt for block in self.blocks if isinstance(block, TextBlock))
        return tuple(prompt for prompt in prompts if prompt is not None)

    @property
    def sight(self) -> tuple[FileSight, ...]:
        """The model's knowledge of files from this message, in the order of its blocks."""
        blocks = (block for block in self.blocks if not isinstance(block, ImageBlock))
        return tuple(sight for block in blocks for sight in block.sight)


@dataclass(frozen=True, slots=True)
class AssistantMessage(ConversationPart):
    blocks: tuple[ContentBlock, ...]
    stop_reason: StopReason = "end_turn"
    role: Literal["assistant"] = "assistant"

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def thinking(self) -> str:
        """The message's readable thinking, or an empty string if the provider shows no thinking."""
        return "\n\n".join(block.text for block in self.blocks if isinstance(block, ThinkingBlock) and block.text)

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        return tuple(block for block in self.blocks if isinstance(block, ToolUseBlock))

    @property
    def is_paused(self) -> bool:
        """Whether the provider paused the answer. The next request then sends the message back to continue the answer.

        A message with tool calls is not paused, because the next message must contain their results. A message that
        contains only blank text is not paused either, because providers reject blank text.
        """
        return (
            self.stop_reason == "pause_turn"
            and not self.tool_uses
            and any(not isinstance(block, TextBlock) or block.text.strip() for block in self.blocks)
        )


Message = UserMessage | AssistantMessage

COMPACTION_TYPE = "compaction"
"""The type of a block that contains a provider's own summary. The provider ignores all earlier messages."""


def find_compaction_origin(message: Message) -> Origin | None:
    """Return the origin of the provider's own summary in a message, or None if the message contains no summary.

    After writing a summary, the provider ignores all messages before it.
    """
    notes = (block for block in message.blocks if isinstance(block, OpaqueBlock) and block.type == COMPACTION_TYPE)
    return next((note.raw.origin for note in notes), None)


Conversation = tuple[Message, ...]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ToolSpec:
    """A tool definition for the model. `input_schema` is a JSON Schema object."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(hash=False)


def strip_opaque_state(message: AssistantMessage) -> AssistantMessage:
    """Return the message without thinking and without opaque state. The result may contain no blocks.

    The raw JSON of text and calls is removed, because it may contain signatures or references to earlier thinking.
    Calls executed by the provider are kept, because a call and its result belong together.
    """
    kept: list[ContentBlock] = []
    for block in message.blocks:
        match block:
            case TextBlock() | ToolUseBlock():
                kept.append(replace(block, raw=None))
            case ServerToolBlock():
                kept.append(block)
            case ThinkingBlock() | RedactedThinkingBlock() | OpaqueBlock():
                pass
            case _:
                assert_never(block)
    return replace(message, blocks=tuple(kept))


def ensure_unique_call_ids(message: AssistantMessage, conversation: Conversation) -> AssistantMessage:
    """Return the message with a unique ID for each tool call.

    Some providers send no IDs or use the same ID in several answers, while other providers reject duplicate IDs. The
    raw block keeps the provider's ID. Requests contain the unique ID.
    """
    taken = {
        block.id
        for earlier in conversation
        if earlier.role == "assistant"
        for block in earlier.blocks
        if isinstance(block, ToolUseBlock)
    }
    blocks: list[ContentBlock] = []
    for block in message.blocks:
        if isinstance(block, ToolUseBlock):
            block = assign_free_id(block, taken)
            taken.add(block.id)
        blocks.append(block)
    return replace(message, blocks=tuple(blocks))


def assign_free_id(call: ToolUseBlock, taken: Collection[str]) -> ToolUseBlock:
    """Return the call with an ID that is not empty and not in `taken`. Keep the call's own ID if possible."""
    if call.id and call.id not in taken:
        return call
    stem, number = call.id or "call", len(taken) + 1
    while f"{stem}-{number}" in taken:
        number += 1
    return replace(call, id=f"{stem}-{number}")


_MAX_FILES = 1_000


class Sight:
    """The model's present knowledge of each file, oldest first. It covers the latest 1,000 files."""

    def __init__(self, sights: Iterable[FileSight] = ()) -> None:
        self._files: dict[str, FileSight] = {}
        self.learn(sights)

    @property
    def files(self) -> tuple[FileSight, ...]:
        return tuple(self._files.values())

    def learn(self, sights: Iterable[FileSight]) -> None:
        """Add knowledge of files. If the model knows a whole text, a part of the same text does not change that."""
        for sight in sights:
            known = self._files.pop(sight.key, None)
            is_same = known is not None and known.digest == sight.digest
            self._files[sight.key] = known.join(sight) if known is not None and is_same else sight
        while len(self._files) > _MAX_FILES:
            del self._files[next(iter(self._files))]

    def find(self, key: str) -> FileSight | None:
        return self._files.get(key)

    def knows_whole(self, key: str, text: str) -> bool:
        """Return True if the model knows exactly this text of a file."""
        known = self._files.get(key)
        return known is not None and known.is_whole and known.digest == compute_digest(text)


def collect_sight(conversation: Conversation) -> Sight:
    """Return the knowledge of a model that has read a conversation."""
    return Sight(_list_sights(conversation))


def collect_held_sight(conversation: Conversation, end: int) -> Sight:
    """Return the model's knowledge from the messages before `end`.

    Results after the last answer do not count, because no model call has held them. The texts in the model's own calls
    do count.
    """
    answered = count_held_messages(conversation)
    own = (sight for sight in _list_sights(conversation[answered:end]) if sight.is_own)
    return Sight((*_list_sights(conversation[: min(end, answered)]), *own))


def count_held_messages(conversation: Conversation) -> int:
    """Return the number of messages before the last answer. Only these messages were certainly sent to the model."""
    return next((at for at in reversed(range(len(conversation))) if conversation[at].role == "assistant"), 0)


def _list_sights(messages: Conversation) -> Iterator[FileSight]:
    for message in messages:
        yield from message.sight if isinstance(message, UserMessage) else ()
