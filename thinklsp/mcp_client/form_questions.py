"""Questions of an MCP server to the user, asked in the same way as questions of the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thinklsp.core.text_safety import escape_invisible
from thinklsp.core.tool_type import Ask, AskText

_MAX_FIELDS, _MAX_OPTIONS, _MAX_OPTION_CHARACTERS = 4, 8, 60
_MAX_QUESTION_CHARACTERS = 2_000
_MAX_ANSWER_CHARACTERS = 10_000
_MAX_TRIES = 3
_DECLINE = "Decline"
_YES, _NO = "Yes", "No"
_TEXT_TYPES = ("string", "integer", "number")


@dataclass(frozen=True, slots=True)
class _ChoiceField:
    """A field with options. `values` are the values by the names of the options."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _TextField:
    """A field for a text or a number."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool

    def parse(self, text: str) -> Any:
        """Return the value for the user's text. Raises ValueError with a sentence for the user."""
        kind = self.schema["type"]
        if kind == "string":
            value: Any = text
            shortest, longest = self.schema.get("minLength"), self.schema.get("maxLength")
            if not _is_between(len(text), shortest, longest) or len(text) > _MAX_ANSWER_CHARACTERS:
                raise ValueError(f"The text must have {_describe_range(shortest, longest)} characters.")
            return value
        try:
            value = int(text) if kind == "integer" else float(text)
            # An integer that is too large for a float raises OverflowError.
            is_finite = math.isfinite(value)
        except (ValueError, OverflowError):
            raise ValueError("The answer must be a whole number." if kind == "integer" else _NO_NUMBER) from None
        if not is_finite:
            raise ValueError(_NO_NUMBER)
        smallest, largest = self.schema.get("minimum"), self.schema.get("maximum")
        if not _is_between(value, smallest, largest):
            raise ValueError(f"The number must be {_describe_range(smallest, largest)}.")
        return value


_NO_NUMBER = "The answer must be a number."


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
        fields = _list_fields(schema)
        if fields is None:
            self._note("to fill in a form that cannot be shown")
            return None
        if self._ask_text is None and any(isinstance(field, _TextField) for field in fields):
            self._note("for a text, but this client cannot show an input for one")
            return None
        content: dict[str, Any] = {}
        for field in fields:
            question = f"The MCP server `{self._server}` asks: {message}"[:_MAX_QUESTION_CHARACTERS]
            if len(fields) > 1:
                question = f"{question}\n{field.name}:"
            question = escape_invisible(question)
            answer = await self._ask_field(field, question)
            if answer is None:
                return None
            content |= answer
        return content

    def _note(self, reason: str) -> None:
        self.notes.append(
            f"The MCP server `{self._server}` asked the user {reason}. The question was declined without an answer."
        )

    async def _ask_field(self, field: _ChoiceField | _TextField, question: str) -> Mapping[str, Any] | None:
        """Return the content of a field, which is empty if the user leaves it out, or None if the user declines."""
        if isinstance(field, _TextField):
            return await self._ask_text_field(field, question)
        answer = await self._ask(question, (*field.values, _DECLINE))
        if answer is None or answer == _DECLINE or answer not in field.values:
            return None
        return {field.name: field.values[answer]}

    async def _ask_text_field(self, field: _TextField, question: str) -> Mapping[str, Any] | None:
        problem = ""
        for _ in range(_MAX_TRIES):
            text = None if self._ask_text is None else await self._ask_text(f"{question}{problem}")
            if text is None:
                return None
            if not text and not field.is_required:
                return {}
            try:
                return {field.name: field.parse(text)}
            except ValueError as error:
                problem = f"\n{error}"
        return None


def _list_fields(schema: Mapping[str, Any]) -> tuple[_ChoiceField | _TextField, ...] | None:
    """Return the fields of a form, or None if the form has a field that cannot be asked for."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or not 0 < len(properties) <= _MAX_FIELDS:
        return None
    needed = required if isinstance(required, list) else ()
    fields = tuple(_build_field(str(name), field, needed) for name, field in properties.items())
    known = tuple(field for field in fields if field is not None)
    return known if len(known) == len(fields) else None


def _build_field(name: str, field: object, required: Iterable[object]) -> _ChoiceField | _TextField | None:
    if not isinstance(field, Mapping) or len(name) > _MAX_OPTION_CHARACTERS:
        return None
    if (options := _list_options(field)) is not None:
        return _ChoiceField(name, options)
    if field.get("type") not in _TEXT_TYPES or "enum" in field or "oneOf" in field:
        return None
    return _TextField(name, field, name in required)


def _list_options(field: Mapping[str, Any]) -> dict[str, Any] | None:
    if field.get("type") == "boolean":
        return {_YES: True, _NO: False}
    values, titles = field.get("enum"), field.get("enumNames")
    if not isinstance(values, list) or not 0 < len(values) <= _MAX_OPTIONS:
        return None
    if not all(isinstance(value, str) and 0 < len(value) <= _MAX_OPTION_CHARACTERS for value in values):
        return None
    names = titles if isinstance(titles, list) and len(titles) == len(values) else values
    options = {
        escape_invisible(str(name)[:_MAX_OPTION_CHARACTERS]): value for name, value in zip(names, values, strict=True)
    }
    return options if len(options) == len(values) and _DECLINE not in options else None


def _is_between(value: float, smallest: object, largest: object) -> bool:
    is_small = isinstance(smallest, int | float) and value < smallest
    return not is_small and not (isinstance(largest, int | float) and value > largest)


def _describe_range(smallest: object, largest: object) -> str:
    words = [f"at least {smallest}"] if isinstance(smallest, int | float) else []
    words += [f"at most {largest}"] if isinstance(largest, int | float) else []
    return " and ".join(words) or f"at most {_MAX_ANSWER_CHARACTERS:,}"
