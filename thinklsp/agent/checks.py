"""What a turn knows of its tests: every command passes by here, and a test run is kept with the edits it was for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thinklsp.core.edits import EditSet
from thinklsp.tools.commands import Commands, Ran
from thinklsp.tools.test_counts import RunOfTests, run_of_tests
from thinklsp.workspace.overlay import EditOverlay

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """A run of tests on these edits; `clean`: and on nothing else, as `Ran` says."""

    argv: Words
    folder: str | None
    edits: EditSet
    tests: RunOfTests
    clean: bool


class Checks:
    """`Commands` for one turn. An edit after a run makes it stale; an edit taken back makes it count again."""

    def __init__(self, commands: Commands, overlay: EditOverlay) -> None:
        self._commands = commands
        self._overlay = overlay
        self.latest: Check | None = None

    async def permitted(self, argv: Sequence[str], folder: str | None) -> bool:
        return await self._commands.permitted(argv, folder)

    async def run(
        self,
        argv: Sequence[str],
        overlay: EditOverlay,
        *,
        folder: str | None,
        seconds: float | None,
        fresh: bool = False,
    ) -> Ran:
        edits = overlay.edit_set()
        ran = await self._commands.run(argv, overlay, folder=folder, seconds=seconds, fresh=fresh)
        tests = run_of_tests(argv, ran)
        if tests is not None and overlay is self._overlay:
            self.latest = Check(tuple(argv), folder, edits, tests, ran.clean)
        return ran

    def present(self) -> Check | None:
        """The latest, if it was for the edits as they are now, and for nothing that will not be there."""
        latest = self.latest
        holds = latest is not None and latest.clean and latest.edits == self._overlay.edit_set()
        return latest if holds else None
