#!/usr/bin/env bash
# FACT: lsprotocol 2025.0.0 has types of LSP 3.18, but reads a diagnostic's MarkupContent message, valid since 3.18, as
#   the repr of a Python dict, without an error. A hover's MarkupContent is read as such.
# WITH: lsprotocol 2025.0.0, cattrs 26.2.1 (PyPI), Python 3.11
# GUESS: structuring fails, or the message stays an object.
# SEEN 2026-11-28: "{'kind': 'markdown', 'value': 'use `x`'}"; sent back, the message is that text.
# MATTERS: authors of servers on pygls that take diagnostics from `context.diagnostics`: menus, prompts and log lines
#   show Python source, and a quick fix matched by its message is not found. Read `message` with a hook of your own.
set -euo pipefail
room=$(mktemp -d); trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install -q --disable-pip-version-check 'lsprotocol==2025.0.0' 'cattrs==26.2.1'
seen=$("$room/venv/bin/python" - <<'PY'
from lsprotocol import types
from lsprotocol.converters import get_converter

converter = get_converter()
place = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}
markup = {"kind": "markdown", "value": "use `x`"}
print("has 3.18:", hasattr(types, "InlineCompletionParams"))
for message in ("plain", markup):
    diagnostic = converter.structure({"range": place, "message": message}, types.Diagnostic)
    print(type(diagnostic.message).__name__, diagnostic.message)
    print("back:", converter.unstructure(diagnostic)["message"] == message)
hover = converter.structure({"contents": markup}, types.Hover)
print("a hover has:", type(hover.contents).__name__)
PY
)
printf '%s\n' "$seen"
expected="has 3.18: True
str plain
back: True
str {'kind': 'markdown', 'value': 'use \`x\`'}
back: False
a hover has: MarkupContent"
[ "$seen" = "$expected" ] || { echo 'the behaviour has changed'; exit 1; }
echo 'as stated'
