"""An MCP server that lists 500 tools with large schemas, and whose tool `a_work` returns a megabyte of text.

`large_server.py ERA`, which is `modern` or `legacy`. Uses only the standard library, and no code of the product.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOLS = 500
FIELDS = 20
WORDS = "A value that this tool needs, with a description as long as those of real servers are. "
RESULT = "It works. " * 100_000
MODERN, LEGACY = "2026-07-28", "2025-11-25"


def build_tool(name: str) -> dict[str, Any]:
    fields = {
        f"field_{number}": {"type": "array", "items": {"type": "string"}, "description": WORDS}
        for number in range(FIELDS)
    }
    schema = {"type": "object", "properties": fields, "required": ["field_0"], "additionalProperties": False}
    annotations = {"title": name, "readOnlyHint": True, "openWorldHint": False}
    return {"name": name, "description": WORDS * 10, "inputSchema": schema, "annotations": annotations}


def build_result(method: str, era: str) -> dict[str, Any] | None:
    match method:
        case "server/discover" if era == "modern":
            result: dict[str, Any] = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
        case "initialize":
            info = {"name": "large", "version": "1"}
            return {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            work = {"name": "a_work", "description": "Works.", "inputSchema": {"type": "object"}}
            result = {"tools": [work, *(build_tool(f"tool_{number}") for number in range(TOOLS - 1))]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": RESULT}]}
        case _:
            return None
    return {**result, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if era == "modern" else result


def serve(era: str) -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = build_result(message["method"], era)
        answer = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode() + b"\n"
        while text:
            text = text[os.write(1, text) :]


if __name__ == "__main__":
    serve(sys.argv[1])
