"""What the tools may run: commands on a copy of the workspace that holds the edits of the turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from thinklsp.core.errors import ToolFailed
from thinklsp.workspace.overlay import EditOverlay

Ended = Literal["exit", "signal", "timeout", "memory", "output", "processes", "disk"]


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended. `output`: both streams as they came, its middle left out where it was long (`cut`, bytes).
    `status`: the exit status, or the signal where `ended` is `signal`. `changed`: paths that the command changed on the
    copy, as people call them; the copy is thrown away. `clean`: at its start nothing was there that an earlier command
    had made, so that it ran on what the user will have."""

    ended: Ended
    status: int
    output: bytes
    seconds: float
    cut: int = 0
    changed: tuple[str, ...] = ()
    clean: bool = True


class Runner(Protocol):
    """Runs a command in a sandbox on a shadow copy. Owned by one turn, which closes it."""

    async def run(
        self, argv: Sequence[str], overlay: EditOverlay, *, folder: str | None, seconds: float, fresh: bool = False
    ) -> Ran:
        """`folder`: where it runs, as a model writes paths; None: the first workspace folder. `fresh`: it has to be
        clean. What it starts does not outlive the call. Raises ToolFailed or PathRefused with a sentence where it
        cannot be run at all."""

    async def aclose(self) -> None: ...


class NotPermitted(ToolFailed):
    """By a rule of the user's, or by their answer."""


class Commands(Protocol):
    """`runner` behind the user's permission."""

    async def permitted(self, argv: Sequence[str], folder: str | None) -> bool:
        """Whether it would run without a question."""

    async def run(
        self,
        argv: Sequence[str],
        overlay: EditOverlay,
        *,
        folder: str | None,
        seconds: float | None,
        fresh: bool = False,
    ) -> Ran:
        """As `Runner.run`; `seconds` None: the usual limit. Raises NotPermitted too."""
