#!/usr/bin/env bash
# FACT: The converter of lsprotocol cannot structure the unions that lsprotocol.types names, such as Definition and
#   DocumentDiagnosticReport. The same unions are structured inside a message.
# WITH: lsprotocol 2025.0.0 with cattrs 26.2.1 (PyPI), Python 3.11
# GUESS: a public type of the package is a valid argument of its converter
# SEEN 2026-11-28: StructureHandlerNotFoundError for the named union, because its members are unresolved forward
#   references; a Location from the message with the same result
# MATTERS: authors of clients and proxies who structure a result by the type that the specification names. Structure
#   the whole response, or register a hook for the union.
set -euo pipefail
room=$(mktemp -d); trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install -q --disable-pip-version-check 'lsprotocol==2025.0.0' 'cattrs==26.2.1'
seen=$("$room/venv/bin/python" - <<'PY'
from lsprotocol import converters, types

place = {"uri": "file:///a.py", "range": {"start": {"line": 1, "character": 2}, "end": {"line": 1, "character": 3}}}
report = {"kind": "unchanged", "resultId": "7"}
converter = converters.get_converter()
for name, value in (("Definition", place), ("DocumentDiagnosticReport", report)):
    try:
        print(name, type(converter.structure(value, getattr(types, name))).__name__)
    except Exception as error:
        print(name, type(error).__name__)
for kind, value in ((types.DefinitionResponse, place), (types.DocumentDiagnosticResponse, report)):
    answer = converter.structure({"jsonrpc": "2.0", "id": 1, "result": value}, kind)
    print(kind.__name__, type(answer.result).__name__)
PY
)
printf '%s\n' "$seen"
expected='Definition StructureHandlerNotFoundError
DocumentDiagnosticReport StructureHandlerNotFoundError
DefinitionResponse Location
DocumentDiagnosticResponse RelatedUnchangedDocumentDiagnosticReport'
[ "$seen" = "$expected" ] || { echo 'the behaviour has changed'; exit 1; }
echo 'as stated'
