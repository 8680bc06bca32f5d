"""Questions of a turn to the user: permissions for commands and folders, budgets, and questions of the model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thinklsp.acp.session_client import NoAnswer, Option, OptionKind, PermissionCancelled, SessionClient
from thinklsp.acp.updates import build_text_content, build_tool_call, build_tool_update
from thinklsp.core.choices import ALLOW_FOR_SESSION, BUDGET_ANSWERS, DO_NOT_RUN, NOT_NOW, RUN_ONCE, BudgetAnswer
from thinklsp.core.events import ToolStarted
from thinklsp.core.text_safety import format_call_id, sanitize_message
from thinklsp.engine.instructions import FOLLOW

_BUDGET_KINDS: Mapping[BudgetAnswer, OptionKind] = {
    "continue": "allow_once",
    "raise": "allow_always",
    "stop": "reject_once",
}
_KINDS: Mapping[str, OptionKind] = {
    RUN_ONCE: "allow_once",
    ALLOW_FOR_SESSION: "allow_always",
    DO_NOT_RUN: "reject_once",
    FOLLOW: "allow_always",
    NOT_NOW: "reject_once",
    **{text: _BUDGET_KINDS[answer] for text, answer in BUDGET_ANSWERS.items()},
}
_NO_ANSWER = Option("none", "Do not answer", "reject_once")
_ALWAYS = "Always allow"
_MAX_TITLE_LENGTH = 100
_QUESTION_TOOL = "ask_user"


class Questions:
    """The questions of one turn. `find_running` returns the tool call that is waiting for the answer, if any.

    `cancel` cancels the turn, if the client answers a question so. `problems` contains a sentence for each question
    that had no valid answer.
    """

    def __init__(
        self,
        client: SessionClient,
        turn_id: str,
        find_running: Callable[[], ToolStarted | None],
        cancel: Callable[[], None],
    ) -> None:
        self._client = client
        self._turn_id = turn_id
        self._find_running = find_running
        self._cancel = cancel
        self._numbers = itertools.count(1)
        self.problems: list[str] = []

    async def ask(self, question: str, options: Sequence[str]) -> str | None:
        """Ask the user to choose an option, and return it, or None without an answer."""
        try:
            return await self._ask(question, options)
        except PermissionCancelled:
            self._cancel()
        except NoAnswer as reason:
            self.problems.append(f"A question counts as rejected: {reason}.")
        return None

    async def ask_text(self, question: str) -> str | None:
        """Ask the user for a text in a form, and return the text, or None without an answer."""
        try:
            return await self._client.ask_text(sanitize_message(question))
        except NoAnswer as reason:
            self.problems.append(f"A question counts as rejected: {reason}.")
        return None

    async def _ask(self, question: str, options: Sequence[str]) -> str | None:
        question = sanitize_message(question)
        running = self._find_running()
        if running is not None and running.name == _QUESTION_TOOL and self._client.features.asks_forms:
            return await self._client.ask_form(question, options)
        rows = [Option(str(number), name, _find_kind(name)) for number, name in enumerate(options)]
        if all(row.kind.startswith("allow") for row in rows):
            rows.append(_NO_ANSWER)
        content = [build_text_content(question)]
        if running is not None:
            call_id = format_call_id(running.call_id)
            call = build_tool_update(call_id, "in_progress", title=running.title, content=content)
            chosen = await self._client.request_permission(_extract_tool_call(call), rows)
        else:
            chosen = await self._ask_apart(question, content, rows)
        return None if chosen is _NO_ANSWER else options[int(chosen.id)]

    async def ask_budget(self, text: str) -> BudgetAnswer:
        answer = await self.ask(text, tuple(BUDGET_ANSWERS))
        return "stop" if answer is None else BUDGET_ANSWERS[answer]

    async def _ask_apart(self, question: str, content: Sequence[Mapping[str, Any]], rows: Sequence[Option]) -> Option:
        """Ask a question that belongs to no tool call. Clients show a question only at a tool call."""
        call_id = f"{self._turn_id}-question-{next(self._numbers)}"
        title = question.partition("\n")[0][:_MAX_TITLE_LENGTH]
        call = build_tool_call(call_id, title, "other", "pending", content=list(content))
        self._client.send(call)
        chosen = None
        try:
            chosen = await self._client.request_permission(_extract_tool_call(call), rows)
        finally:
            self._client.send(build_tool_update(call_id, "failed" if chosen is None else "completed"))
        return chosen


def _find_kind(option: str) -> OptionKind:
    return "allow_always" if option.startswith(_ALWAYS) else _KINDS.get(option, "allow_once")


def _extract_tool_call(update: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool call of an update, as a permission request repeats it."""
    return {name: value for name, value in update.items() if name != "sessionUpdate"}
