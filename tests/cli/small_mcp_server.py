"""A small MCP server of the older era: `small_mcp_server.py TOOLS.json` lists the tools in the file. A call returns its
arguments, or what TOOLS.results contains for the tool: a list of content, or the schema of a form for the user, whose
answer is returned. It lists the tools after it has read the pipe TOOLS.wait, and then writes to the pipe TOOLS.next.
"""

import json
import sys
from pathlib import Path

RESULTS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "small", "version": "1"},
    },
    "tools/list": {"tools": json.loads(Path(sys.argv[1]).read_text("utf-8"))},
}
RESULTS_PATH = Path(sys.argv[1]).with_suffix(".results")
WAIT, NEXT = RESULTS_PATH.with_suffix(".wait"), RESULTS_PATH.with_suffix(".next")
RETURNED = json.loads(RESULTS_PATH.read_text("utf-8")) if RESULTS_PATH.exists() else {}


def ask(schema: object) -> str:
    params = {"message": "Which city?", "requestedSchema": schema}
    sys.stdout.write(
        json.dumps({"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": params}) + "\n"
    )
    sys.stdout.flush()
    while (answer := json.loads(sys.stdin.readline())).get("id") != "ask":
        pass
    return json.dumps(answer["result"])


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    lists = request["method"] == "tools/list"
    if lists and WAIT.exists():
        WAIT.read_bytes()
    if request["method"] in RESULTS:
        answer = {"result": RESULTS[request["method"]]}
    elif request["method"] == "tools/call":
        text = json.dumps(request["params"]["arguments"])
        content = RETURNED.get(request["params"]["name"]) or [{"type": "text", "text": text}]
        if isinstance(content, dict):
            content = [{"type": "text", "text": ask(content)}]
        answer = {"result": {"content": content}}
    else:
        answer = {"error": {"code": -32601, "message": "unknown method"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + "\n")
    sys.stdout.flush()
    if lists and NEXT.exists():
        NEXT.write_bytes(b"")
