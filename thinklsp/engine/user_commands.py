"""The commands that the model runs in the sandbox, subject to the user's permission rules and approvals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from thinklsp.core.choices import ALLOW_FOR_SESSION, DO_NOT_RUN, RUN_ONCE
from thinklsp.core.errors import SettingsError
from thinklsp.core.tool_type import Ask
from thinklsp.sandbox.process import CommandLimits, CommandResult
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.settings.user_file import CommandsSection, UserSettings
from thinklsp.tools.command import Approval, PermissionRules, build_question, decide, derive_rule
from thinklsp.tools.runners import Words, format_command
from thinklsp.tools.shadow_runner import ShadowRunner, explain_missing_sandbox
from thinklsp.tools.tool import NotPermitted
from thinklsp.workspace.overlay import EditOverlay

_LOG = logging.getLogger(__name__)

RunnerFactory = Callable[[CommandsSection, Mapping[str, str]], Awaitable[ShadowRunner | None]]
"""A factory for the command runner of one turn, with the user's limits and environment.

The factory returns None if this machine has no sandbox. The runner allocates its resources at its first run.
"""


async def create_sandbox_runner(limits: CommandsSection, environment: Mapping[str, str]) -> ShadowRunner | None:
    if await asyncio.to_thread(explain_missing_sandbox) is not None:
        return None
    command_limits = CommandLimits(
        limits.memory_mb * 1024**2, limits.processes, limits.output_kb * 1024, limits.disk_mb * 1024**2
    )
    return ShadowRunner(environment, resolve_state_folder(environment), command_limits)


async def _skip_question(_question: str, _options: tuple[str, ...]) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class UserCommands:
    """The commands of one turn.

    `session_approvals` contains the commands that the user has allowed for this session. It exists only in memory.
    """

    runner: ShadowRunner
    user: UserSettings
    permissions: PermissionsFile
    session_approvals: set[Approval] = field(default_factory=set)
    ask: Ask = _skip_question

    async def aclose(self) -> None:
        await self.runner.aclose()

    async def is_permitted(self, argv: Sequence[str], folder: str | None) -> bool:
        try:
            rules = await asyncio.to_thread(self._read_rules)
        except SettingsError:
            return False
        return decide(Approval(tuple(argv), folder), rules, self.session_approvals).kind == "allow"

    async def run(
        self,
        argv: Sequence[str],
        overlay: EditOverlay,
        *,
        folder: str | None,
        seconds: float | None,
        fresh: bool = False,
    ) -> CommandResult:
        action = Approval(tuple(argv), folder)
        await self._permit(action)
        limit = float(self.user.file.commands.timeout_seconds)
        return await self.runner.run(
            action.argv, overlay, folder=folder, seconds=min(seconds or limit, limit), fresh=fresh
        )

    async def _permit(self, action: Approval) -> None:
        """Check a command against the permission rules, and ask the user if the rules require it.

        Raises NotPermitted.
        """
        try:
            rules = await asyncio.to_thread(self._read_rules)
        except SettingsError as error:
            raise NotPermitted(f"Commands cannot run: {error}") from None
        decision = decide(action, rules, self.session_approvals)
        if decision.kind == "deny":
            raise NotPermitted(decision.reason)
        if decision.kind == "ask":
            await self._ask(action)

    async def _ask(self, action: Approval) -> None:
        lasting = derive_rule(action.argv)
        always = None if lasting is None else format_always_title(*lasting)
        answer = await self.ask(
            build_question(action), (RUN_ONCE, ALLOW_FOR_SESSION, *filter(None, (always,)), DO_NOT_RUN)
        )
        if answer == ALLOW_FOR_SESSION:
            self.session_approvals.add(action)
        elif lasting is not None and answer == always:
            await self._remember(action, *lasting)
        elif answer != RUN_ONCE:
            raise NotPermitted(
                "The user did not allow this command. Do not try another form of the command: continue without it, and "
                "tell the user which checks are missing."
            )

    async def _remember(self, action: Approval, kind: Literal["allow", "exact"], words: Words) -> None:
        try:
            await asyncio.to_thread(self.permissions.allow, kind, words)
        except SettingsError as error:
            # Keep the user's approval in memory if `permissions.toml` cannot be written.
            _LOG.warning("the permission is stored for this session only: %s", error)
            self.session_approvals.add(action)

    def _read_rules(self) -> PermissionRules:
        """Reload the rules from the user's settings file and from `permissions.toml`. Raises SettingsError."""
        file_rules, stored_rules = self.user.file.permissions, self.permissions.read().commands
        return PermissionRules(
            (*file_rules.allow, *stored_rules.allow),
            (*file_rules.deny, *stored_rules.deny),
            (*file_rules.exact, *stored_rules.exact),
        )


def format_always_title(kind: str, words: Words) -> str:
    """Return the title of the button that always allows a command. The title includes the new permission rule."""
    return f"Always allow {format_command(words)}" if kind == "allow" else "Always allow exactly this command"
