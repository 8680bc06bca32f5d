"""The closed set of tools, and which of them a turn may use."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from thinklsp.core.messages import ToolSpec
from thinklsp.tools.base import AnyTool
from thinklsp.tools.command import RunCommand
from thinklsp.tools.diagnostics import ReadDiagnostics
from thinklsp.tools.edit import DeleteFile, EditFile, RenameFile, WriteFile
from thinklsp.tools.read import ListFiles, ReadFile
from thinklsp.tools.search import SearchText
from thinklsp.tools.symbols import Definition, Outline, References
from thinklsp.tools.talk import AskUser, Plan

Mode = Literal["agent", "ask", "plan", "none"]

# The order is part of every request's bytes.
TOOLS: tuple[AnyTool, ...] = (
    ReadFile(),
    ListFiles(),
    SearchText(),
    Outline(),
    ReadDiagnostics(),
    Definition(),
    References(),
    EditFile(),
    WriteFile(),
    RenameFile(),
    DeleteFile(),
    AskUser(),
    Plan(),
)

# Where the user lets commands run.
WITH_COMMANDS: tuple[AnyTool, ...] = (*TOOLS, RunCommand())


def tools_for(mode: Mode, tools: tuple[AnyTool, ...] = TOOLS) -> tuple[AnyTool, ...]:
    """`agent` has all of them; `ask` and `plan` have none that changes a file or runs a command; `none` has none."""
    if mode == "none":
        return ()
    return tools if mode == "agent" else tuple(tool for tool in tools if not (tool.edits or tool.runs))


@lru_cache(maxsize=8)
def tool_specs(tools: tuple[AnyTool, ...]) -> tuple[ToolSpec, ...]:
    """As the model sees them; the same tools always give the same specs. Schemas are slow to make, so they are kept."""
    return tuple(tool.spec() for tool in tools)
