"""A session of the MCP SDK with one server, in either era of the protocol.

The SDK's own functions for calls are not used: they check results against the server's schema on the event loop, where
a regular expression in the schema could run forever, and they ask the user without a limit.

This module imports the SDK, so only `connection` imports it, in a thread.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import PurePath
from types import TracebackType
from typing import Any, Self

import mcp_types
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from thinklsp import __version__
from thinklsp.core.errors import McpFailed
from thinklsp.mcp_client.call_result import MAX_NAME_CHARACTERS, CallResult, ResultImage
from thinklsp.mcp_client.connection import find_cause
from thinklsp.mcp_client.elicitation import MAX_ROUNDS, CallInput, Elicit
from thinklsp.mcp_client.guarded_process import ServerCommand
from thinklsp.mcp_client.http_transport import HttpTransport, read_token
from thinklsp.mcp_client.message_limits import limit_tools, make_printable
from thinklsp.mcp_client.server_config import ListedTool, ServerConfig
from thinklsp.mcp_client.stdio_transport import StdioTransport
from thinklsp.settings.user_file import NetworkSection

# The schema of a tool that the server listed without one. Such a tool is left out with a notice.
_NO_SCHEMA = {"type": "null"}


def convert_tool(server: str, tool: mcp_types.Tool) -> ListedTool:
    """Return the tool as the server listed it, which `limit_tools` has kept. Values of a wrong type are left out."""
    listed: dict[str, Any] = (tool.meta or {})["listed"]
    title, text, schema = (listed.get(key) for key in ("title", "description", "inputSchema"))
    return ListedTool(
        server,
        tool.name,
        title if isinstance(title, str) else "",
        text if isinstance(text, str) else "",
        schema if isinstance(schema, dict) else _NO_SCHEMA,
        listed["annotations"] if isinstance(listed.get("annotations"), dict) else {},
    )


def convert_result(result: mcp_types.CallToolResult) -> CallResult:
    """Convert a result. Decoding 4 MiB of images takes up to 20 ms."""
    structured = result.structured_content if isinstance(result.structured_content, dict) else None
    return CallResult(tuple(map(_convert_block, result.content)), structured, result.is_error)


def _convert_block(block: mcp_types.ContentBlock) -> str | ResultImage:
    if isinstance(block, mcp_types.TextContent):
        return block.text
    if isinstance(block, mcp_types.ImageContent):
        try:
            return ResultImage(base64.b64decode(block.data, validate=True), block.mime_type)
        except (binascii.Error, ValueError):
            return "[The server sent an image that is not valid base64.]"
    if isinstance(block, mcp_types.ResourceLink):
        name, uri = block.name[:MAX_NAME_CHARACTERS], str(block.uri)[:MAX_NAME_CHARACTERS]
        return f"[a link to {name}: {uri}; it was not opened]"
    if isinstance(block, mcp_types.EmbeddedResource) and isinstance(block.resource, mcp_types.TextResourceContents):
        return block.resource.text
    mime_type = block.resource.mime_type if isinstance(block, mcp_types.EmbeddedResource) else block.mime_type
    return f"[The server sent data of type {make_printable(mime_type or 'unknown', MAX_NAME_CHARACTERS)}, left out.]"


_MAX_PAGES, _MAX_TOOLS = 20, 2_000
_MAX_ERROR_LENGTH = 2_000
_MAX_SUBSCRIPTIONS = 5
# A call's own limit does not count the user's time, so the SDK's limit is not used.
_NO_LIMIT = math.inf
_CALL_RESULTS: TypeAdapter[mcp_types.CallToolResult | mcp_types.InputRequiredResult] = TypeAdapter(
    mcp_types.CallToolResult | mcp_types.InputRequiredResult
)
_DECLINED = mcp_types.ElicitResult(action="decline")


class _ToolLimiter(AbstractAsyncContextManager["_ToolLimiter"]):
    """The stream of messages for the SDK, with limited lists of tools."""

    def __init__(self, inner: Any, is_wanted: Callable[[str], bool]) -> None:
        self._inner = inner
        self._is_wanted = is_wanted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._inner.__anext__()
        if isinstance(item, SessionMessage) and isinstance(item.message, mcp_types.JSONRPCResponse):
            item.message.result = limit_tools(item.message.result, self._is_wanted)
        return item

    async def __aexit__(self, *error: object) -> None:
        await self._inner.aclose()


class SdkSession(AbstractAsyncContextManager["SdkSession"]):
    """A session, which must be entered and left by the same task. Other tasks may make calls.

    `transport.ended` is set when the server has exited or has broken a rule, and `transport.failure` is then the end of
    a sentence about the server.
    """

    def __init__(
        self, config: ServerConfig, label: str, folders: Sequence[str], transport: StdioTransport | HttpTransport
    ) -> None:
        self._config = config
        self._label = label
        self._folders = folders
        self.transport = transport
        self._calls: list[CallInput] = []
        self._watch_task: asyncio.Task[None] | None = None
        self._client = Client(
            self._limit_tools(),
            mode="auto",
            cache=None,
            read_timeout_seconds=max(config.start_timeout_seconds, 1.0),
            client_info=mcp_types.Implementation(name="thinklsp", version=__version__),
            list_roots_callback=self._list_roots,
            elicitation_callback=self._answer_elicitation,
            message_handler=self._note_notification,
        )

    @classmethod
    async def open(
        cls, config: ServerConfig, label: str, folders: Sequence[str], on_list_change: Callable[[], None], *,
        command: ServerCommand | None, environment: Mapping[str, str], network: NetworkSection,
    ) -> SdkSession:  # fmt: skip
        """Prepare a session with the server that `command` starts or, without one, with the server at the URL.

        `on_list_change` is called for each change of the tool list. Raises McpFailed if the configuration is wrong.
        """
        if command is not None:
            return cls(config, label, folders, StdioTransport(command, on_list_change))
        token = await read_token(config, label, environment)
        transport = await asyncio.to_thread(HttpTransport, config, label, token, on_list_change, network)
        return cls(config, label, folders, transport)

    async def __aenter__(self) -> Self:
        try:
            await self._client.__aenter__()
        except Exception as error:
            cause = find_cause(error)
            if isinstance(cause, MCPError | ValidationError):
                raise McpFailed(f"{self._label} rejected the connection: {explain(cause)}.") from None
            raise
        capability = self._client.server_capabilities.tools
        if self.era in MODERN_PROTOCOL_VERSIONS and capability is not None and capability.list_changed:
            self._watch_task = asyncio.create_task(self._watch_list())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch_task is not None:
            self._watch_task.cancel()
            await asyncio.gather(self._watch_task, return_exceptions=True)
        await self._client.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _limit_tools(self) -> AsyncIterator[Any]:
        async with self.transport as (received, sent):
            yield _ToolLimiter(received, self._config.offers), sent

    @property
    def era(self) -> str:
        """The version of the protocol, which is a date."""
        return self._client.protocol_version

    async def list_tools(self) -> tuple[ListedTool, ...]:
        """Return all tools, up to 2,000. Raises McpFailed if the server's answer is invalid."""
        tools: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            try:
                params = mcp_types.PaginatedRequestParams(cursor=cursor)
                page = await self._client.session.list_tools(params=params)
            except (MCPError, ValidationError) as error:
                raise McpFailed(f"{self._label} did not list its tools: {explain(error)}.") from None
            tools += [convert_tool(self._config.name, tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(tools) >= _MAX_TOOLS:
                break
        return tuple(tools[:_MAX_TOOLS])

    async def call(self, name: str, arguments: Mapping[str, Any], elicit: Elicit) -> CallResult:
        """Call a tool and wait for its result, without a time limit for the user's input.

        If the caller is cancelled, the server is told. Raises McpFailed if there is no valid result.
        """
        call = CallInput(elicit, self._config.timeout_seconds)
        self._calls.append(call)
        try:
            async with call.limit_time():
                return await self._call(name, arguments, call)
        except MCPError as error:
            if self.transport.ended.is_set():
                raise
            text = make_printable(error.error.message, _MAX_ERROR_LENGTH)
            return CallResult((f"The server rejected the call: {text}",), is_error=True)
        except ValidationError:
            raise McpFailed(f"{self._label} sent an invalid result for the tool `{name}`.") from None
        except TimeoutError:
            raise McpFailed(
                f"{self._label} did not finish the tool `{name}` within {self._config.timeout_seconds:g} seconds. The "
                "outcome is unknown."
            ) from None
        finally:
            self._calls.remove(call)
            call.cancel()

    async def _call(self, name: str, arguments: Mapping[str, Any], call: CallInput) -> CallResult:
        responses: dict[str, Any] | None = None
        state: str | None = None
        for _ in range(MAX_ROUNDS + 1):
            params = mcp_types.CallToolRequestParams(
                name=name, arguments=dict(arguments), input_responses=responses, request_state=state
            )
            result = await self._client.session.send_request(
                mcp_types.CallToolRequest(params=params), _CALL_RESULTS, request_read_timeout_seconds=_NO_LIMIT
            )
            if isinstance(result, mcp_types.CallToolResult):
                return await asyncio.to_thread(convert_result, result)
            state = result.request_state
            responses = {key: await self._respond(each, call) for key, each in (result.input_requests or {}).items()}
        raise McpFailed(f"{self._label} asked for input more than {MAX_ROUNDS} times in the tool `{name}`.")

    async def _respond(self, request: mcp_types.InputRequest, call: CallInput) -> Any:
        if isinstance(request, mcp_types.ElicitRequest):
            return await self._ask_user(request.params, call)
        if isinstance(request, mcp_types.ListRootsRequest):
            return self._build_roots()
        raise McpFailed(f"{self._label} asked for a model's answer (sampling), which thinklsp declines.")

    async def _answer_elicitation(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the SDK passes it
        params: mcp_types.ElicitRequestParams,
    ) -> mcp_types.ElicitResult:
        """Answer a request that an older server sends on its own. The request belongs to the latest call."""
        return await self._ask_user(params, self._calls[-1]) if self._calls else _DECLINED

    async def _ask_user(self, params: mcp_types.ElicitRequestParams, call: CallInput) -> mcp_types.ElicitResult:
        if not isinstance(params, mcp_types.ElicitRequestFormParams):
            return _DECLINED
        content = await call.ask(params.message, params.requested_schema)
        if content is None:
            return _DECLINED
        with suppress(ValidationError):
            return mcp_types.ElicitResult(action="accept", content=dict(content))
        return _DECLINED

    async def _list_roots(self, context: ClientRequestContext) -> mcp_types.ListRootsResult:  # noqa: ARG002 - as above
        return self._build_roots()

    def _build_roots(self) -> mcp_types.ListRootsResult:
        uris = [PurePath(folder).as_uri() for folder in self._folders]
        return mcp_types.ListRootsResult.model_validate({"roots": [{"uri": uri} for uri in uris]})

    async def _note_notification(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.transport.on_list_change()

    async def _watch_list(self) -> None:
        """Subscribe to changes of the tool list, which newer servers report only to subscribers."""
        for _ in range(_MAX_SUBSCRIPTIONS):
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with self._client.listen(tools_list_changed=True) as changes:
                    async for _event in changes:
                        self.transport.on_list_change()
            # Changes may have been missed between two subscriptions.
            self.transport.on_list_change()


def explain(error: Exception) -> str:
    """Return the end of a sentence about an error of the SDK."""
    if isinstance(error, MCPError):
        return make_printable(error.error.message, _MAX_ERROR_LENGTH).rstrip(".")
    return "its answer is invalid"
