"""The conversion of the SDK's values into thinklsp's own types.

This module imports the SDK's types, so only `sdk` imports it, in a thread.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import mcp_types

from thinklsp.mcp_client.call_result import CallResult, ResultImage, ResultLink, ResultPart, ResultText
from thinklsp.mcp_client.listed_tool import ListedTool
from thinklsp.mcp_client.untrusted_text import make_printable

_MAX_NAME = 200


def convert_tool(server: str, tool: mcp_types.Tool) -> ListedTool:
    annotations: dict[str, Any] = {}
    if tool.annotations is not None:
        annotations = tool.annotations.model_dump(by_alias=True, mode="json", exclude_none=True)
    return ListedTool(server, tool.name, tool.title or "", tool.description or "", tool.input_schema, annotations)


def convert_result(result: mcp_types.CallToolResult) -> CallResult:
    """Convert a result. Decoding 4 MiB of images takes up to 20 ms."""
    structured = result.structured_content if isinstance(result.structured_content, dict) else None
    return CallResult(tuple(map(_convert_block, result.content)), structured, result.is_error)


def _convert_block(block: mcp_types.ContentBlock) -> ResultPart:
    if isinstance(block, mcp_types.TextContent):
        return ResultText(block.text)
    if isinstance(block, mcp_types.ImageContent):
        return _convert_image(block)
    if isinstance(block, mcp_types.ResourceLink):
        return ResultLink(str(block.uri), block.name, block.mime_type or "")
    if isinstance(block, mcp_types.EmbeddedResource) and isinstance(block.resource, mcp_types.TextResourceContents):
        return ResultText(block.resource.text)
    mime_type = block.resource.mime_type if isinstance(block, mcp_types.EmbeddedResource) else block.mime_type
    return ResultText(f"[The server sent data of type {make_printable(mime_type or 'unknown', _MAX_NAME)}, left out.]")


def _convert_image(block: mcp_types.ImageContent) -> ResultPart:
    try:
        data = base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        return ResultText("[The server sent an image that is not valid base64.]")
    return ResultImage(data, block.mime_type)
