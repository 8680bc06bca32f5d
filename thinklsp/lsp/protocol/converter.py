"""The cattrs converter between JSON and lsprotocol types."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from cattrs import Converter
from lsprotocol import types
from lsprotocol.converters import get_converter

from thinklsp.lsp.protocol import lenient


@cache
def load_converter() -> Converter:
    """Return the process-wide converter. The first use is slow, because cattrs generates code for each type.

    Validation stops at the first invalid value, because a full report about a long list could take minutes. `lenient`
    reads the values that the client only passes on.
    """
    result = get_converter(Converter(detailed_validation=False))
    result.register_structure_hook(bool, _structure_bool)
    result.register_structure_hook(str, _structure_text)
    for kind, read in lenient.READERS.items():
        result.register_structure_hook(kind, partial(_read, read))
    structure = result.get_structure_hook(types.CodeActionParams)
    result.register_structure_hook(types.CodeActionParams, partial(_structure_code_action, structure))
    unstructure = result.get_unstructure_hook(types.Diagnostic)
    result.register_unstructure_hook(types.Diagnostic, partial(_unstructure_diagnostic, unstructure))
    return result


def _structure_bool(value: object, _: type[bool]) -> bool:
    """Reject values that are not booleans. Otherwise, cattrs converts the text "no" to True."""
    if not isinstance(value, bool):
        raise TypeError("not a boolean")
    return value


def _structure_text(value: object, _: type[str]) -> str:
    """Reject values that are not strings. Otherwise, cattrs converts null to the text "None"."""
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _read(read: Callable[[object], object], value: object, _: type) -> object:
    return read(value)


def _structure_code_action(
    structure: Callable[[Any, Any], types.CodeActionParams], value: Any, kind: type[types.CodeActionParams]
) -> types.CodeActionParams:
    """Structure the params strictly, except for the context. Most clients copy the range from a diagnostic."""
    range_ = lenient.limit_range(value["range"])
    params = structure({**value, "range": range_, "context": {"diagnostics": []}}, kind)
    params.context = lenient.read_code_action_context(value.get("context"), params.range)
    return params


def _unstructure_diagnostic(unstructure: Callable[[types.Diagnostic], Any], diagnostic: types.Diagnostic) -> Any:
    value = unstructure(diagnostic)
    message = diagnostic.message
    return {**value, "message": message.markup} if isinstance(message, lenient.MarkupMessage) else value
