"""The type of a tool that the model can call. `tools/` and `mcp_client/` implement it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from thinklsp.core.events import CallLocation, PlanEntry
from thinklsp.core.messages import FileSight, ImageBlock, ToolSpec

Ask = Callable[[str, tuple[str, ...]], Awaitable[str | None]]
"""Asks the user a question with options; None if the user dismissed the question or did not answer in time."""

AskText = Callable[[str], Awaitable[str | None]]
"""Asks the user for a text; None if the user dismissed the question or did not answer in time."""

Context_contra = TypeVar("Context_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The result of a tool call. `sight` is the model's knowledge of files from the text."""

    text: str
    is_error: bool = False
    plan: tuple[PlanEntry, ...] | None = None
    images: tuple[ImageBlock, ...] = ()
    sight: tuple[FileSight, ...] = ()


KEPT_PATH_PREFIX = "result:"
_KEPT_PATH = re.compile(KEPT_PATH_PREFIX + "[0-9a-f]{8}")


def is_kept_path(path: str) -> bool:
    """Return True for the path of a text that a session keeps."""
    return _KEPT_PATH.fullmatch(path) is not None


class TextKeeper(Protocol):
    """Keeps long texts for a session, so that the model can read them in parts."""

    async def keep(self, text: str) -> str | None:
        """Keep a text. Return the path with which `read_file` reads it, or None if the text cannot be kept."""
        ...

    async def read(self, path: str) -> str | None:
        """Return a text, or None if the session does not keep it."""
        ...


class ToolType(Protocol[Context_contra]):
    """A function that the model can call. The context contains what the turn offers to the call.

    Calls of tools with `read_only` may run concurrently. Tools with `edits` change files, and tools with `runs` run
    programs or use the network. Neither kind is available in the `ask` and `plan` modes.
    """

    @property
    def name(self) -> str: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def edits(self) -> bool: ...

    @property
    def runs(self) -> bool: ...

    def build_spec(self) -> ToolSpec: ...

    def format_title(self, arguments: Mapping[str, Any]) -> str:
        """Return a short title for a call, such as `read src/app.py`, also if the arguments are invalid."""
        ...

    def find_location(self, arguments: Mapping[str, Any]) -> CallLocation | None:
        """Return the file that a call is about, or None if the call names no file or its arguments are invalid."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: Context_contra) -> ToolOutput:
        """Run a call. Raises ToolFailed or PathRefused with a message for the model."""
        ...
