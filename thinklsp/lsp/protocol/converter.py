"""The cattrs converter between JSON and lsprotocol types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from cattrs import Converter
from lsprotocol import types
from lsprotocol.converters import get_converter


@cache
def load_converter() -> Converter:
    """Return the process-wide converter. The first use is slow, because cattrs generates code for each type.

    Validation stops at the first invalid value, because a full report about a long list could take minutes.
    """
    result = get_converter(Converter(detailed_validation=False))
    result.register_structure_hook(bool, _structure_bool)
    structure = result.get_structure_hook(types.Diagnostic)
    result.register_structure_hook(types.Diagnostic, lambda value, kind: _structure_diagnostic(structure, value, kind))
    unstructure = result.get_unstructure_hook(types.Diagnostic)
    result.register_unstructure_hook(types.Diagnostic, lambda value: _unstructure_diagnostic(unstructure, value))
    return result


class MarkupMessage(str):
    """A diagnostic message that the client sent as MarkupContent (LSP 3.18).

    lsprotocol 2025 supports only plain text. The string contains the text, and `markup` contains the original value to
    send back to the client.
    """

    __slots__ = ("markup",)

    markup: Mapping[str, Any]


def _structure_bool(value: object, _: type[bool]) -> bool:
    """Reject values that are not booleans. Otherwise, cattrs converts the text "no" to True."""
    if not isinstance(value, bool):
        raise TypeError("not a boolean")
    return value


def _structure_diagnostic(
    structure: Callable[[Any, Any], types.Diagnostic], value: Any, kind: type[types.Diagnostic]
) -> types.Diagnostic:
    markup = value["message"]
    diagnostic = structure({**value, "message": ""} if is_markup(markup) else value, kind)
    if is_markup(markup):
        message = MarkupMessage(markup["value"])
        message.markup = {"kind": markup["kind"], "value": markup["value"]}
        diagnostic.message = message
    return diagnostic


def _unstructure_diagnostic(unstructure: Callable[[types.Diagnostic], Any], diagnostic: types.Diagnostic) -> Any:
    value = unstructure(diagnostic)
    message = diagnostic.message
    return {**value, "message": message.markup} if isinstance(message, MarkupMessage) else value


def is_markup(value: object) -> bool:
    """Return whether a JSON value is MarkupContent."""
    return isinstance(value, Mapping) and isinstance(value.get("value"), str) and isinstance(value.get("kind"), str)
