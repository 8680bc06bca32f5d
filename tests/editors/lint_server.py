"""The language's own server of the trials: says where a name is not defined, and nothing else. Speaks over stdio.

With `--check` it looks once at what stands on stdin and prints lines as pyflakes does, for editors that run programs.
"""

from __future__ import annotations

import re
import sys

from lsprotocol import types
from pygls.lsp.server import LanguageServer

server = LanguageServer("thinklsp-lint", "1")
_UNDEFINED = re.compile(r"\bvalue\b")


@server.feature(types.TEXT_DOCUMENT_DID_OPEN)
@server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
def look(params: types.DidOpenTextDocumentParams | types.DidChangeTextDocumentParams) -> None:
    document = server.workspace.get_text_document(params.text_document.uri)
    found = [
        types.Diagnostic(
            range=types.Range(types.Position(number, hit.start()), types.Position(number, hit.end())),
            message="undefined name 'value'",
            severity=types.DiagnosticSeverity.Error,
            source="lint",
            code="undefined-name",
        )
        for number, line in enumerate(document.lines)
        for hit in _UNDEFINED.finditer(line)
    ]
    server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(document.uri, found, document.version))


def check(text: str) -> None:
    for number, line in enumerate(text.splitlines(), start=1):
        for hit in _UNDEFINED.finditer(line):
            print(f"<stdin>:{number}:{hit.start() + 1}: undefined name 'value'")


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        check(sys.stdin.read())
    else:
        server.start_io()
