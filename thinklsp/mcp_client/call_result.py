"""The result of a tool call on an MCP server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Shows a message and a form to the user. Returns the user's input, or None if the user declines.
Elicit = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class ResultText:
    """Text from the server. It is untrusted."""

    text: str


@dataclass(frozen=True, slots=True)
class ResultImage:
    """An image, decoded but not checked. `mime_type` is the server's claim."""

    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class ResultLink:
    """A reference to a resource, which must not be fetched."""

    uri: str
    name: str
    mime_type: str = ""


ResultPart = ResultText | ResultImage | ResultLink


@dataclass(frozen=True, slots=True)
class CallResult:
    """The parts of a result in the server's order.

    `is_error` is true if the tool failed, or if the server rejected the call. `structured` is the structured content if
    it is an object.
    """

    parts: tuple[ResultPart, ...]
    structured: Mapping[str, Any] | None = None
    is_error: bool = False
