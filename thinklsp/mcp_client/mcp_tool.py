"""A tool of an MCP server that the model can call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from thinklsp.core.errors import McpFailed, ToolFailed
from thinklsp.core.events import CallLocation
from thinklsp.core.messages import ToolSpec
from thinklsp.core.tool_type import Ask, AskText, TextKeeper, ToolOutput
from thinklsp.mcp_client.argument_check import check_arguments
from thinklsp.mcp_client.connection import McpConnection
from thinklsp.mcp_client.form_questions import FormQuestions
from thinklsp.mcp_client.result_text import format_result
from thinklsp.mcp_client.tool_permission import AskedTool, ToolPermissions
from thinklsp.mcp_client.tool_schemas import UsableTool


class AskingContext(Protocol):
    """The part of a turn's tool context that MCP tools use."""

    @property
    def ask(self) -> Ask: ...

    @property
    def ask_text(self) -> AskText | None: ...

    @property
    def texts(self) -> TextKeeper | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class McpTool:
    """A tool of an MCP server. It needs the user's permission, and is never run in the modes that only read.

    `on_allowed` is called when the user has allowed a new tool.
    """

    usable: UsableTool
    connection: McpConnection
    asked: AskedTool
    permissions: ToolPermissions
    on_allowed: Callable[[], Awaitable[None]]
    read_only: bool = False
    edits: bool = False
    runs: bool = True

    @property
    def name(self) -> str:
        return self.usable.name

    def build_spec(self) -> ToolSpec:
        return ToolSpec(self.usable.name, self.usable.description, self.usable.schema)

    def format_title(self, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002 - part of the signature
        return f"{self.usable.listed.server}: {self.usable.listed.name}"

    def find_location(self, arguments: Mapping[str, Any]) -> CallLocation | None:  # noqa: ARG002 - part of the signature
        """Return None, because the arguments of another program are not known to be paths."""
        return None

    async def call(self, arguments: Mapping[str, Any], context: AskingContext) -> ToolOutput:
        """Run a call. Raises ToolFailed with a message for the model."""
        listed = self.usable.listed
        if (problem := await asyncio.to_thread(check_arguments, listed.input_schema, arguments)) is not None:
            raise ToolFailed(problem)
        await self.permissions.require(self.asked, arguments, context.ask)
        if self.asked.is_new:
            await self.on_allowed()
        questions = FormQuestions(listed.server, context.ask, context.ask_text)
        try:
            result = await self.connection.call(listed.name, arguments, questions.elicit)
        except McpFailed as failed:
            raise ToolFailed(" ".join((str(failed), *questions.notes))) from None
        output = await format_result(listed.server, result, context.texts)
        return replace(output, text="\n".join((*questions.notes, output.text)))
