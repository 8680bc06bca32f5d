"""The questions of an MCP server to the user during a call, asked in the same way as questions of the model."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from thinklsp.core.text_safety import escape_invisible
from thinklsp.core.tool_type import Ask, AskText

Elicit = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Shows a message and a form to the user. Returns the user's input, or None if the user declines."""

MAX_ROUNDS = 3
_LOG = logging.getLogger(__name__)
_MAX_FIELDS, _MAX_OPTIONS, _MAX_OPTION_CHARACTERS = 16, 8, 60
_MAX_QUESTION_CHARACTERS = 2_000
_MAX_ANSWER_CHARACTERS = 10_000
_MAX_TRIES = 3
_DECLINE, _FINISH = "Decline", "Finish the list"


class CallInput:
    """The questions of one call and the call's time limit, which does not count the time that the user needs."""

    def __init__(self, elicit: Elicit, seconds: float) -> None:
        self._elicit = elicit
        self._seconds = seconds
        self._count = 0
        self._lock = asyncio.Lock()
        self._limit: asyncio.Timeout | None = None
        self._questions: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def limit_time(self) -> AsyncIterator[None]:
        """Raise TimeoutError if the server takes longer than the limit."""
        try:
            async with asyncio.timeout(self._seconds) as self._limit:
                yield
        finally:
            self._limit = None

    async def ask(self, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the user's input, or None if the user declines or the server asks more than three times."""
        self._count += 1
        if self._count > MAX_ROUNDS:
            return None
        async with self._lock:
            question = asyncio.ensure_future(self._elicit(message, schema))
            self._questions.add(question)
            self._set_limit(None)
            try:
                return await question
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not question.cancelled() or (task is not None and task.cancelling() > 0):
                    raise
                # The call has ended, so its question was cancelled.
                return None
            except Exception:  # noqa: BLE001 - the question is declined if it cannot be asked
                _LOG.info("a question of an MCP server could not be asked", exc_info=True)
                return None
            finally:
                question.cancel()
                self._questions.discard(question)
                self._set_limit(asyncio.get_running_loop().time() + self._seconds)

    def cancel(self) -> None:
        """Cancel the open questions, because the call has ended."""
        for question in self._questions:
            question.cancel()

    def _set_limit(self, when: float | None) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(when)


class FormQuestions:
    """The questions of one call of a tool, with one question per field of a form.

    `ask_text` is None if the client cannot ask for a text. `notes` are sentences about forms that could not be shown.
    """

    def __init__(self, server: str, ask: Ask, ask_text: AskText | None) -> None:
        self._server = server
        self._ask = ask
        self._ask_text = ask_text
        self.notes: list[str] = []

    async def elicit(self, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Ask the user for the content of a form. Return None if the user declines, or if the form cannot be shown."""
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(properties, Mapping) or len(properties) > _MAX_FIELDS:
            properties = {}
        options = {name: _list_options(field) for name, field in properties.items()}
        texts = [name for name, choices in options.items() if choices is None]
        is_short = 0 < max(map(len, options), default=0) <= _MAX_OPTION_CHARACTERS
        if not is_short or not all(_is_text_field(properties[name]) for name in texts):
            self._note("to fill in a form that cannot be shown")
            return None
        if texts and self._ask_text is None:
            self._note("for a text, but this client cannot show an input for one")
            return None
        content: dict[str, Any] = {}
        for name, choices in options.items():
            field = properties[name]
            question = f"The MCP server `{self._server}` asks: {message}"[:_MAX_QUESTION_CHARACTERS]
            label = f"\n{field.get('title') or name}:" if len(options) > 1 else ""
            if description := field.get("description"):
                label += f"\n{description}"
            question = escape_invisible(question + label[:_MAX_QUESTION_CHARACTERS])
            is_required = isinstance(required, list) and name in required
            if choices is None:
                answer = await self._ask_for_text(name, field["type"], question, is_required=is_required)
            else:
                value = await self._choose(question, choices, field)
                answer = None if value is None else {name: value}
            if answer is None:
                return None
            content |= answer
        return content

    def _note(self, reason: str) -> None:
        self.notes.append(
            f"The MCP server `{self._server}` asked the user {reason}. The question was declined without an answer."
        )

    async def _choose(self, question: str, choices: Mapping[str, Any], field: Mapping[str, Any]) -> Any:
        """Return the value of a field with options, or None if the user declines. A list is chosen option by option."""
        is_list, left, values = field.get("type") == "array", dict(choices), list[Any]()
        least, most = (field.get("minItems", 0), field.get("maxItems", len(choices))) if is_list else (1, 1)
        while left and len(values) < most:
            finish = (_FINISH,) if len(values) >= least else ()
            chosen = f"\nChosen: {', '.join(name for name in choices if name not in left)}" if values else ""
            answer = await self._ask(f"{question}{chosen}", (*left, *finish, _DECLINE))
            if answer in finish:
                break
            if answer not in left:
                return None
            values.append(left.pop(answer))
        return values if is_list else values[0]

    async def _ask_for_text(self, name: str, kind: str, question: str, *, is_required: bool) -> dict[str, Any] | None:
        """Return the content of a field, which is empty if the user leaves it out, or None if the user declines."""
        problem = ""
        for _ in range(_MAX_TRIES):
            text = None if self._ask_text is None else await self._ask_text(f"{question}{problem}")
            if text is None:
                return None
            if not text and not is_required:
                return {}
            try:
                return {name: _parse(text, kind)}
            except ValueError as error:
                problem = f"\n{error}"
        return None


def _is_text_field(field: object) -> bool:
    if not isinstance(field, Mapping) or {"enum", "oneOf"} & field.keys():
        return False
    return field.get("type") in ("string", "integer", "number")


def _list_options(field: object) -> dict[str, Any] | None:
    """Return the values of a field by the names of its options, or None if the field has no options."""
    if isinstance(field, Mapping) and field.get("type") == "boolean":
        return {"Yes": True, "No": False}
    if isinstance(field, Mapping) and field.get("type") == "array":
        field = field.get("items")
    if not isinstance(field, Mapping):
        return None
    values, titles, choices = field.get("enum"), field.get("enumNames"), field.get("oneOf", field.get("anyOf"))
    if isinstance(choices, list) and all(isinstance(choice, Mapping) for choice in choices):
        values = [choice.get("const") for choice in choices]
        titles = [choice.get("title", choice.get("const")) for choice in choices]
    if not isinstance(values, list) or not 0 < len(values) <= _MAX_OPTIONS:
        return None
    if not all(isinstance(value, str) and 0 < len(value) <= _MAX_OPTION_CHARACTERS for value in values):
        return None
    names = titles if isinstance(titles, list) and len(titles) == len(values) else values
    shown = [escape_invisible(str(name)[:_MAX_OPTION_CHARACTERS]) for name in names]
    options = dict(zip(shown, values, strict=True))
    return options if len(options) == len(values) and options.keys().isdisjoint((_DECLINE, _FINISH)) else None


def _parse(text: str, kind: str) -> str | float:
    """Return the value for the user's text. Raises ValueError with a sentence for the user."""
    if kind == "string":
        return text[:_MAX_ANSWER_CHARACTERS]
    try:
        value = int(text) if kind == "integer" else float(text)
        # An integer that is too large for a float raises OverflowError.
        if math.isfinite(value):
            return value
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"The answer must be a {'whole ' if kind == 'integer' else ''}number.")
