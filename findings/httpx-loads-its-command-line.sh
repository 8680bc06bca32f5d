#!/usr/bin/env bash
# FACT: `import httpx` imports its command-line client, and with it click, rich and pygments, if they are installed. The
#   extra `httpx[cli]` is not needed for that, and no setting prevents it.
# WITH: httpx 0.28.1, click 8.5.1, rich 15.0.0 (PyPI), Python 3.11
# GUESS: the command line is loaded by the program `httpx` only.
# SEEN 2026-11-28: with click and rich the import loads 97 more modules (276 instead of 179, with the packages of
#   a test environment), 5.8 MB of resident memory (29.4 instead of 23.6) and 35 ms of processor time (80 instead of 45).
# MATTERS: programs that start often or stay in memory, such as language servers. A package that has nothing to do with
#   HTTP clients makes them larger and slower: click comes with uvicorn, which the MCP SDK requires. Compare the memory
#   of a program in an environment like that of a user.
set -euo pipefail
room=$(mktemp -d); trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
pip() { "$room/venv/bin/pip" install -q --disable-pip-version-check "$@"; }
show() { "$room/venv/bin/python" -c 'import sys, httpx; print(*[name for name in ("click", "rich", "pygments") if name in sys.modules] or ["none"])'; }
pip 'httpx==0.28.1' 'rich==15.0.0'
seen="without click: $(show)"
pip 'click==8.5.1'
seen+=$'\n'"with click: $(show)"
printf '%s\n' "$seen"
[ "$seen" = $'without click: none\nwith click: click rich pygments' ] || { echo 'the behaviour has changed'; exit 1; }
echo 'as stated'
