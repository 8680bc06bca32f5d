"""Messages of a conversation, made of blocks. What came from a provider keeps its raw JSON, sealed.

A block has two faces: neutral fields that the program may read and show, and `raw`, the provider's own JSON, which
only the encoder of that provider and the session store may open. Replay to the issuer sends `raw`; replay to anyone
else is rebuilt from the neutral fields, and blocks that have none worth sending are left out whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from thinklsp.core.memo import IdentityMemo

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
    """Who issued a block: opaque state goes back to exactly this provider, model, host and key.

    `host` is scheme and authority of the base URL; `key` a fingerprint (a digest, never the key).
    """

    provider: str
    model: str
    host: str
    key: str


class OpaqueState:
    """Raw provider JSON that may hold signatures or encrypted thinking. It cannot be shown by accident.

    There is no text form, no pickling and no JSON encoding; `open_for` is the only way to the content and
    demands the origin that it was sealed with.
    """

    __slots__ = ("_origin", "_text")

    def __init__(self, text: str, origin: Origin) -> None:
        self._text = text
        self._origin = origin

    @property
    def origin(self) -> Origin:
        return self._origin

    def belongs_to(self, origin: Origin) -> bool:
        return self._origin == origin

    def open_for(self, origin: Origin) -> str:
        """The JSON text as received. Raises ValueError for anybody but the issuer."""
        if origin != self._origin:
            raise ValueError("opaque state was asked for by somebody who did not issue it")
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
class Part:
    """A part of a conversation: a message or a block. An `IdentityMemo` can keep values that are derived from it."""


@dataclass(frozen=True, slots=True)
class TextBlock(Part):
    """`raw` is None where the block came with nothing but its text."""

    text: str
    raw: OpaqueState | None = None
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class ThinkingBlock(Part):
    """`text` is the readable summary, often empty; the signature lives in `raw`."""

    text: str
    raw: OpaqueState | None = None
    kind: Literal["thinking"] = "thinking"


@dataclass(frozen=True, slots=True)
class RedactedThinkingBlock(Part):
    raw: OpaqueState
    kind: Literal["redacted_thinking"] = "redacted_thinking"


@dataclass(frozen=True, slots=True)
class ToolUseBlock(Part):
    """A call that the model asks for. `input` is None when its arguments did not parse as a JSON object."""

    id: str
    name: str
    input: Mapping[str, Any] | None = field(hash=False)
    raw: OpaqueState | None = None
    kind: Literal["tool_use"] = "tool_use"


@dataclass(frozen=True, slots=True)
class ServerToolBlock(Part):
    """A call that the provider runs itself, or its result. It is echoed, never answered."""

    name: str
    raw: OpaqueState
    kind: Literal["server_tool"] = "server_tool"


@dataclass(frozen=True, slots=True)
class OpaqueBlock(Part):
    """A block of a type that this version does not know. It is echoed to its issuer as it came."""

    type: str
    raw: OpaqueState
    kind: Literal["opaque"] = "opaque"


@dataclass(frozen=True, slots=True)
class ToolResultBlock(Part):
    """Our answer to one `ToolUseBlock`, as plain text."""

    tool_use_id: str
    text: str
    is_error: bool = False
    kind: Literal["tool_result"] = "tool_result"


ContentBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ServerToolBlock | OpaqueBlock


@dataclass(frozen=True, slots=True)
class UserMessage(Part):
    """Tool results come first, text after them: providers refuse the other order."""

    blocks: tuple[ToolResultBlock | TextBlock, ...]
    role: Literal["user"] = "user"

    @staticmethod
    def of(text: str) -> UserMessage:
        return UserMessage((TextBlock(text),))


@dataclass(frozen=True, slots=True)
class AssistantMessage(Part):
    blocks: tuple[ContentBlock, ...]
    stop_reason: StopReason = "end_turn"
    role: Literal["assistant"] = "assistant"

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def thinking(self) -> str:
        """The readable thinking of the message; empty where the provider shows none."""
        return "\n\n".join(block.text for block in self.blocks if isinstance(block, ThinkingBlock) and block.text)

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        return tuple(block for block in self.blocks if isinstance(block, ToolUseBlock))

    @property
    def is_paused(self) -> bool:
        """Whether it is a piece of an answer: sent back as it is, it makes the service go on. One with calls waits for
        their results instead, and blank text is refused, so that one of nothing else would be sent as nothing."""
        return (
            self.stop_reason == "pause_turn"
            and not self.tool_uses
            and any(not isinstance(block, TextBlock) or block.text.strip() for block in self.blocks)
        )


Message = UserMessage | AssistantMessage

_SHORTENED_BY: IdentityMemo[tuple[Origin | None]] = IdentityMemo()

COMPACTION = "compaction"
"""The type of a block in which a service has noted what it had read so far; it reads nothing that stands before it."""


def shortened_by(message: Message) -> Origin | None:
    """Whose note of the past stands in the message, so that they no longer read what came before it."""
    if message.role == "user":
        return None
    known = _SHORTENED_BY.find(message)
    if known is None:
        # Asked about every message at every step.
        notes = (block for block in message.blocks if isinstance(block, OpaqueBlock) and block.type == COMPACTION)
        known = _SHORTENED_BY.keep(message, (next((note.raw.origin for note in notes), None),))
    return known[0]


Conversation = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; `input_schema` is a JSON Schema object."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(hash=False)
