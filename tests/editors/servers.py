"""The language servers of the trials, over stdio: `python servers.py lint | asking | knowing`.

`lint` is the language's own: it says where a name is not defined, and nothing else. With `--check` it looks once at
what stands on stdin and prints lines as pyflakes does, for editors that run programs. `asking` stands in the place of
thinklsp: it asks the editor whatever its command `trial.ask` is given, and answers what that answers; `trial.apply`
sends an edit. `knowing` knows where words stand and which functions there are.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter


class _Quiet(LanguageServer):
    """Keeps its errors to itself: a late message about a closed file must not stop Neovim at "Press ENTER"."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        sys.stderr.write(f"{source}: {error!r}\n")


lint = _Quiet("thinklsp-lint", "1")
asking = LanguageServer("thinklsp-asking", "1")
knowing = LanguageServer("thinklsp-knowing", "1")
_UNDEFINED = re.compile(r"\bvalue\b")
_FUNCTION = re.compile(r"(?<=def )\w+")


@lint.feature(types.TEXT_DOCUMENT_DID_OPEN)
@lint.feature(types.TEXT_DOCUMENT_DID_CHANGE)
def look(params: types.DidOpenTextDocumentParams | types.DidChangeTextDocumentParams) -> None:
    document = lint.workspace.get_text_document(params.text_document.uri)
    found = [
        types.Diagnostic(
            types.Range(types.Position(number, hit.start()), types.Position(number, hit.end())),
            "undefined name 'value'", types.DiagnosticSeverity.Error, "undefined-name", source="lint",
        )
        for number, line in enumerate(document.lines)
        for hit in _UNDEFINED.finditer(line)
    ]  # fmt: skip
    lint.text_document_publish_diagnostics(types.PublishDiagnosticsParams(document.uri, found, document.version))


def check(text: str) -> None:
    for number, line in enumerate(text.splitlines(), start=1):
        for hit in _UNDEFINED.finditer(line):
            print(f"<stdin>:{number}:{hit.start() + 1}: undefined name 'value'")


@asking.command("trial.ask")
async def ask(question: dict) -> Any:  # type: ignore[type-arg] # pygls reads the annotation
    """`question`: {method, params} of a request."""
    return _plain(await asking.protocol.send_request_async(question["method"], question["params"]))


@asking.command("trial.apply")
async def apply(params: dict) -> bool:  # type: ignore[type-arg] # pygls reads the annotation
    """Send the params of an edit. Return whether the editor applied it."""
    converter = default_converter()  # type: ignore[no-untyped-call] # pygls does not type this function
    edit = converter.structure(params, types.ApplyWorkspaceEditParams)
    return (await asking.workspace_apply_edit_async(edit)).applied


def _plain(value: Any) -> Any:
    """As it came: pygls makes objects of what it does not know."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _places(params: types.TextDocumentPositionParams) -> list[types.Location]:
    document = knowing.workspace.get_text_document(params.text_document.uri)
    word = document.word_at_position(params.position)
    hits = re.finditer(rf"\b{re.escape(word)}\b", document.source)
    return [types.Location(document.uri, _range(document.source, hit)) for hit in hits]


def _range(source: str, hit: re.Match[str]) -> types.Range:
    line, start = source.count("\n", 0, hit.start()), hit.start() - (source.rfind("\n", 0, hit.start()) + 1)
    return types.Range(types.Position(line, start), types.Position(line, start + len(hit[0])))


@knowing.feature(types.TEXT_DOCUMENT_DEFINITION)
def definition(params: types.DefinitionParams) -> types.Location:
    return _places(params)[0]


@knowing.feature(types.TEXT_DOCUMENT_REFERENCES)
def references(params: types.ReferenceParams) -> list[types.Location]:
    return _places(params)


@knowing.feature(types.TEXT_DOCUMENT_HOVER)
def hover(params: types.HoverParams) -> types.Hover:
    return types.Hover(f"it stands in {len(_places(params))} places")


@knowing.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
def symbols(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    source = knowing.workspace.get_text_document(params.text_document.uri).source
    return [
        types.DocumentSymbol(hit[0], types.SymbolKind.Function, where, where)
        for hit in _FUNCTION.finditer(source)
        for where in [_range(source, hit)]
    ]


@knowing.feature(types.WORKSPACE_SYMBOL)
def all_symbols(params: types.WorkspaceSymbolParams) -> list[types.WorkspaceSymbol]:
    return [
        types.WorkspaceSymbol(types.Location(uri, _range(document.source, hit)), hit[0], types.SymbolKind.Function)
        for uri, document in knowing.workspace.text_documents.items()
        for hit in _FUNCTION.finditer(document.source)
        if params.query in hit[0]
    ]


if __name__ == "__main__":
    if sys.argv[2:] == ["--check"]:
        check(sys.stdin.read())
    else:
        {"lint": lint, "asking": asking, "knowing": knowing}[sys.argv[1]].start_io()
