"""One output item of an answer while it arrives: its pieces, what of them can be read, and what it comes to.

The service sends every item whole at its end, and that is what is kept; the pieces are for the reader, and for servers
that send nothing else. Sealed thinking that came with the announcement of an item is partial and never kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.pieces import Pieces
from thinklsp.core.stream import (
    BlockDelta,
    BlockKind,
    BlockStarted,
    BlockStopped,
    FieldsDelta,
    InputJsonDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)

PartKind = Literal["output_text", "refusal", "summary_text", "reasoning_text", "arguments"]

_BLOCK_KINDS: Mapping[str, BlockKind] = {"message": "text", "reasoning": "thinking", "function_call": "tool_use"}
_APART = "\n\n"
# Arguments that never parse: a call that was cut must not run, even where what there is of it looks whole.
_NEVER_WHOLE = "{"
_ARGUMENT_CHARS = 1024 * 1024


def kind_of(item: Mapping[str, Any]) -> BlockKind:
    """What the service runs itself, and what this version does not know, is only kept."""
    return _BLOCK_KINDS.get(str(item.get("type")), "opaque")


def string(content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    return value if isinstance(value, str) else ""


def name_of(item: Mapping[str, Any]) -> str:
    """By which the service knows the item again; empty where it gave no name."""
    return string(item, "call_id") or string(item, "id")


class ItemDraft:
    """One item under its index. `whole` is the finished item, None while it is open. `unsealed`: thinking that was
    finished without its sealed form, which the final response may still bring. `heard`: some text was handed out;
    `spoke`: and not only blanks."""

    def __init__(self, index: int, opened: Mapping[str, Any]) -> None:
        self.index = index
        self.kind = kind_of(opened)
        self.whole: dict[str, Any] | None = None
        self.unsealed: Mapping[str, Any] | None = None
        self.heard = self.spoke = False
        self._shown = Pieces()
        self._opened = opened
        self._pieces: dict[tuple[PartKind, int], Pieces] = {}
        self._last_shown: tuple[PartKind, int] | None = None
        self._summarized = False
        self._aloud: int | None = None
        self._argument_chars = 0

    @property
    def name(self) -> str:
        return name_of(self._opened if self.whole is None else self.whole)

    def started(self) -> StreamEvent:
        fields = _call_fields(self._opened) if self.kind == "tool_use" else {"type": str(self._opened.get("type"))}
        return BlockStarted(self.index, self.kind, fields)

    def add(self, part: PartKind, number: int, text: str, *, apart: bool) -> list[StreamEvent]:
        """Another piece of one part. `apart`: somebody has spoken before in this answer."""
        if not text:
            return []
        if part == "arguments":
            self._bound(len(text))
        number = self._numbered(part, number)
        if (pieces := self._pieces.get((part, number))) is None:
            pieces = self._pieces[part, number] = Pieces()
        pieces.append(text)
        return self._show(part, number, text, apart=apart)

    def settle(self, part: PartKind, number: int, text: str, *, apart: bool) -> list[StreamEvent]:
        """The finished part, which replaces its pieces. The reader gets what they did not bring."""
        number = self._numbered(part, number)
        so_far = str(self._pieces.get((part, number), ""))
        is_end = part == "reasoning_text" and so_far.endswith(text)
        if part == "reasoning_text":
            self._aloud = None
        if not text or text == so_far or is_end:
            return []
        self._pieces[part, number] = Pieces(text)
        return self._show(part, number, text[len(so_far) :], apart=apart) if text.startswith(so_far) else []

    def stop(self, item: Mapping[str, Any] | None, *, cut: bool, apart: bool) -> list[StreamEvent]:
        """`item` as the service finished it, None where it never did. `cut`: the whole answer ended too early."""
        whole = self.whole = self._finished(item, cut=cut)
        if self.kind == "tool_use":
            return [*self._call(whole, cut=cut), BlockStopped(self.index, whole)]
        if self.kind not in ("text", "thinking"):
            return [BlockStopped(self.index, whole)]
        text, shown = self._readable(whole), str(self._shown)
        # Long answers would lie here several times, until all of them is there.
        self._shown, self._pieces = Pieces(), {}
        if text and self.kind == "text" and (shown.startswith(_APART) if shown else apart):
            text = _APART + text
        if not text.startswith(shown):
            self.heard, self.spoke = bool(text), bool(text.strip())
            return [BlockStopped(self.index, whole, text)]
        return [*self._handed_out(text[len(shown) :]), BlockStopped(self.index, whole)]

    def _show(self, part: PartKind, number: int, text: str, *, apart: bool) -> list[StreamEvent]:
        """Of thinking the summary, else the thinking itself. Paragraphs are set apart, and so is a second message."""
        self._summarized = self._summarized or part == "summary_text"
        if part in ("refusal", "arguments") or (part == "reasoning_text" and self._summarized):
            return []
        is_next = self._last_shown not in (None, (part, number)) if self.kind == "thinking" else apart
        if is_next and (self.kind == "thinking" or not self.heard):
            text = _APART + text
        self._last_shown = (part, number)
        return self._handed_out(text)

    def _handed_out(self, text: str) -> list[StreamEvent]:
        if not text:
            return []
        self._shown.append(text)
        self.heard = True
        self.spoke = self.spoke or not text.isspace()
        return [BlockDelta(self.index, TextDelta(text) if self.kind == "text" else ThinkingDelta(text))]

    def _call(self, whole: Mapping[str, Any], *, cut: bool) -> list[StreamEvent]:
        """Name and arguments, as far as they were not known when the call began."""
        status, fields = whole.get("status"), _call_fields(whole)
        is_half = status == "incomplete" or (cut and status != "completed")
        arguments = _NEVER_WHOLE if is_half else string(whole, "arguments")
        self._argument_chars = 0
        self._bound(len(arguments))
        renamed = [] if fields == _call_fields(self._opened) else [BlockDelta(self.index, FieldsDelta(fields))]
        return [*renamed, BlockDelta(self.index, InputJsonDelta(arguments))]

    def _bound(self, chars: int) -> None:
        self._argument_chars += chars
        if self._argument_chars > _ARGUMENT_CHARS:
            # Appending is cheap, but the whole is parsed at once at the end.
            error = StreamProtocolError("The model wrote tool arguments of more than a million characters.")
            error.retryable = False
            raise error

    def _finished(self, item: Mapping[str, Any] | None, *, cut: bool) -> dict[str, Any]:
        """What the service left out of the finished item is filled in from the pieces; what it said stays."""
        whole = {**(self._announced(cut=cut) if item is None else item)}
        match self.kind:
            case "text" if not whole.get("content"):
                whole["content"] = list(self._parts("output_text", "refusal"))
            case "thinking":
                if not isinstance(whole.get("summary"), list):
                    whole["summary"] = list(self._parts("summary_text"))
                if item is None and (content := list(self._parts("reasoning_text"))):
                    whole["content"] = content
            case "tool_use" if not string(whole, "arguments"):
                whole["arguments"] = self._joined("arguments")
        return whole

    def _announced(self, *, cut: bool) -> dict[str, Any]:
        """The item as it was opened, without what is only there when it is finished."""
        partial = ("encrypted_content", "content", "summary", "status")
        whole = {key: value for key, value in self._opened.items() if key not in partial}
        if self.kind == "text":
            whole["role"] = "assistant"
        # An item of which we know nothing else cannot be trusted to be whole.
        return whole | {"status": "incomplete" if cut or self.kind == "opaque" else "completed"}

    def _readable(self, whole: Mapping[str, Any]) -> str:
        """The finished item's text. Thinking may end without any, though pieces of it have been shown."""
        if self.kind == "text":
            return "".join(_texts(whole, "content", "output_text"))
        told = _texts(whole, "summary", "summary_text") or _texts(whole, "content", "reasoning_text")
        if any(text.strip() for text in told):
            return _APART.join(text for text in told if text)
        return self._joined("summary_text") or self._joined("reasoning_text")

    def _parts(self, *kinds: PartKind) -> Iterator[dict[str, Any]]:
        for part, number in sorted(self._pieces, key=lambda place: place[1]):
            text = str(self._pieces[part, number])
            if part not in kinds:
                continue
            if part == "refusal":
                yield {"type": part, "refusal": text}
            elif part == "output_text":
                yield {"type": part, "text": text, "annotations": []}
            else:
                yield {"type": part, "text": text}

    def _joined(self, kind: PartKind) -> str:
        places = sorted(place for place in self._pieces if place[0] == kind)
        return _APART.join(str(self._pieces[place]) for place in places)

    def _numbered(self, part: PartKind, number: int) -> int:
        """Some servers count every piece of the thinking itself as a part, but only real ones are said to be done."""
        if part == "reasoning_text" and self._aloud is None:
            self._aloud = number
        return self._aloud if part == "reasoning_text" and self._aloud is not None else number


def refusal_in(message: Mapping[str, Any]) -> str:
    """What the finished message says where it declines to answer; empty where it does not."""
    return "".join(_texts(message, "content", "refusal", "refusal"))


def _call_fields(item: Mapping[str, Any]) -> dict[str, str]:
    return {"id": string(item, "call_id"), "name": string(item, "name")}


def _texts(whole: Mapping[str, Any], key: str, kind: str, field: str = "text") -> list[str]:
    parts = whole.get(key)
    return [
        string(part, field)
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, dict) and part.get("type") == kind
    ]
