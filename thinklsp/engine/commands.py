"""Who may run commands, and whether anybody can: the user's file, what they allowed while working, and the sandbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from thinklsp.core.errors import SettingsError
from thinklsp.sandbox.process import Limits
from thinklsp.sessions.state_folder import state_folder
from thinklsp.settings.permissions import Permissions
from thinklsp.settings.user_file import CommandsSection, UserSettings
from thinklsp.tools.base import Ask
from thinklsp.tools.commands import Commands, NotPermitted, Ran, Runner
from thinklsp.tools.permission import Approval, Rules, Words, decide, question, readable, rememberable
from thinklsp.tools.shadow_runner import ShadowRunner, sandbox_problem
from thinklsp.workspace.overlay import EditOverlay

_LOG = logging.getLogger(__name__)

MakeRunner = Callable[[CommandsSection, Mapping[str, str]], Awaitable[Runner | None]]
"""The runner of one turn, within the user's limits and by their environment; None where this machine has no sandbox.
What it takes up it takes up at its first run."""

ONCE, SESSION, DENY = "Run once", "Allow in this session", "Don't run"


async def sandbox(limits: CommandsSection, environment: Mapping[str, str]) -> Runner | None:
    if await asyncio.to_thread(sandbox_problem) is not None:
        return None
    most = Limits(limits.memory_mb * 1024**2, limits.processes, limits.output_kb * 1024, limits.disk_mb * 1024**2)
    return ShadowRunner(environment, state_folder(environment), most)


async def _nobody(_question: str, _options: tuple[str, ...]) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class UserCommands:
    """The commands of one turn. `granted`: what was allowed in the session, kept for as long as the engine lives."""

    runner: Runner
    user: UserSettings
    granted: set[Approval] = field(default_factory=set)
    ask: Ask = _nobody

    def asking(self, ask: Ask) -> Commands:
        return replace(self, ask=ask)

    async def aclose(self) -> None:
        await self.runner.aclose()

    async def permitted(self, argv: Sequence[str], folder: str | None) -> bool:
        try:
            rules = await asyncio.to_thread(self._rules)
        except SettingsError:
            return False
        return decide(Approval(tuple(argv), folder), rules, self.granted).kind == "allow"

    async def run(
        self,
        argv: Sequence[str],
        overlay: EditOverlay,
        *,
        folder: str | None,
        seconds: float | None,
        fresh: bool = False,
    ) -> Ran:
        action = Approval(tuple(argv), folder)
        await self._permit(action)
        limit = float(self.user.file.commands.timeout_seconds)
        return await self.runner.run(
            action.argv, overlay, folder=folder, seconds=min(seconds or limit, limit), fresh=fresh
        )

    async def _permit(self, action: Approval) -> None:
        """Raises NotPermitted."""
        try:
            rules = await asyncio.to_thread(self._rules)
        except SettingsError as error:
            raise NotPermitted(f"No command may run: {error}") from None
        decision = decide(action, rules, self.granted)
        if decision.kind == "deny":
            raise NotPermitted(decision.why)
        if decision.kind == "ask":
            await self._ask(action)

    async def _ask(self, action: Approval) -> None:
        lasting = rememberable(action.argv)
        always = None if lasting is None else always_title(*lasting)
        answer = await self.ask(question(action), (ONCE, SESSION, *filter(None, (always,)), DENY))
        if answer == SESSION:
            self.granted.add(action)
        elif lasting is not None and answer == always:
            await self._remember(action, *lasting)
        elif answer != ONCE:
            raise NotPermitted(
                "The user did not permit this command. Do not try it in another form; go on without it, and say what "
                "you could not check."
            )

    async def _remember(self, action: Approval, kind: str, words: Words) -> None:
        permissions = Permissions.beside(self.user.path)
        remember = permissions.allow if kind == "allow" else permissions.allow_exactly
        try:
            await asyncio.to_thread(remember, words)
        except SettingsError as error:
            # The yes holds all the same, for as long as it can.
            _LOG.warning("a permission is kept for the session only: %s", error)
            self.granted.add(action)

    def _rules(self) -> Rules:
        """Of the user's file and of what they allowed while working, read anew. Raises SettingsError."""
        own, kept = self.user.file.permissions, Permissions.beside(self.user.path).read().commands
        return Rules((*own.allow, *kept.allow), (*own.deny, *kept.deny), (*own.exact, *kept.exact))


def always_title(kind: str, words: Words) -> str:
    """What the button for an "always" says: as much as is remembered."""
    return f"Always allow {readable(words)}" if kind == "allow" else "Always allow exactly this command"
