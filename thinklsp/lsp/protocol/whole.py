"""The whole protocol, by pygls and lsprotocol: it judges what is not of the usual form, and says what of our features
follows for a client. Imported when that is first needed, which is seldom: it takes longer than all that is served
before."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from cattrs import Converter
from lsprotocol import types
from lsprotocol.converters import get_converter
from pygls.lsp.server import LanguageServer

from thinklsp import __version__
from thinklsp.lsp.announced import COMMANDS, COMPLETION_TRIGGERS, QUICKFIX, REWRITE
from thinklsp.lsp.protocol.errors import InvalidParams
from thinklsp.lsp.protocol.forms import is_markup

# What `initialize` is about when its capabilities cannot be read as a whole.
_NEEDED = ("processId", "rootUri", "workspaceFolders", "initializationOptions")
_LONGEST_ECHO = 100


@cache
def _converter() -> Converter:
    """One for all connections of the process: it writes code for each type that it meets, and that takes time.

    What does not fit ends it at once: an account of all that is wrong with a long list would take minutes.
    """
    return get_converter(Converter(detailed_validation=False))


def usual_params(method: str, message: Mapping[str, Any]) -> Any:
    """The params of a message that we take, in the form that the protocol gives them. Raises InvalidParams."""
    kind = types.METHOD_TO_TYPES[method][0]
    try:
        params = _converter().unstructure(_converter().structure(message, kind))["params"]
    except Exception:  # noqa: BLE001 - cattrs raises groups of anything; all of it means that params do not fit
        raise InvalidParams(f"The params of {method[:_LONGEST_ECHO]} are not valid.") from None
    if method == types.TEXT_DOCUMENT_CODE_ACTION:
        # The types are those of 3.17, which know messages as texts only.
        came = message["params"]["context"]["diagnostics"]
        for diagnostic, one in zip(params["context"]["diagnostics"], came, strict=True):
            if is_markup(one["message"]):
                diagnostic["message"] = one["message"]
    return params


def initialize(message: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The params in their usual form, and what is to be answered. Raises InvalidParams."""
    params = _initialize_params(message.get("params"))
    result: types.InitializeResult = _returned(_server().protocol.lsp_initialize(params))
    # pygls leaves the progress out; without it a conforming client never sends a token for it.
    announced = types.ExecuteCommandOptions(list(COMMANDS), work_done_progress=True)
    result.capabilities.execute_command_provider = announced
    return _converter().unstructure(params), _converter().unstructure(result)


def _initialize_params(params: object) -> types.InitializeParams:
    """Capabilities of a newer or a careless client may not fit the types; they must not lock it out."""
    capabilities = params.get("capabilities") if isinstance(params, Mapping) else None
    if not isinstance(params, Mapping) or not isinstance(capabilities, Mapping):
        raise InvalidParams("The params of initialize are not valid.")
    known = {name: params[name] for name in _NEEDED if name in params}
    general = capabilities.get("general")
    for tried in (params, known | {"capabilities": {"general": general}}, known | {"capabilities": {}}):
        with suppress(Exception):
            read: types.InitializeParams = _converter().structure(tried, types.InitializeParams)
            return read
    raise InvalidParams("The params of initialize are not valid.")


def _server() -> LanguageServer:
    """With all that we serve; who serves it is not asked here."""
    server = LanguageServer("thinklsp", __version__, converter_factory=_converter, max_workers=1)
    for method, options in (
        (types.WORKSPACE_DID_CHANGE_CONFIGURATION, None),
        (types.TEXT_DOCUMENT_DID_SAVE, None),
        (types.TEXT_DOCUMENT_HOVER, None),
        (types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[QUICKFIX, REWRITE])),
        (types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False)),
        (types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=list(COMPLETION_TRIGGERS))),
    ):
        server.feature(method, options)(_elsewhere)
    for command in COMMANDS:
        server.command(command)(_elsewhere)
    return server


def _elsewhere() -> None:
    """Served by the dispatcher."""


def _returned(generator: Any) -> Any:
    """The result of a pygls generator that waits for no user handler."""
    try:
        while True:
            next(generator)
    except StopIteration as stop:
        return stop.value
