"""The available tools, their selection by mode, and the `plan` and `ask_user` tools."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.events import PlanEntry, PlanStatus
from thinklsp.core.messages import ToolSpec
from thinklsp.core.text_safety import sanitize_message, to_one_line
from thinklsp.core.tool_type import ToolOutput
from thinklsp.tools.command import RunCommand
from thinklsp.tools.diagnostics import ReadDiagnostics
from thinklsp.tools.edit import DeleteFile, EditFile, RenameFile, WriteFile
from thinklsp.tools.read import ListFiles, ReadFile
from thinklsp.tools.read_skill import ReadSkill
from thinklsp.tools.search import SearchText
from thinklsp.tools.symbols import FindDefinition, FindReferences, OutlineFile
from thinklsp.tools.tool import AnyTool, Arguments, Tool, ToolContext

# The number of characters that fit on a button.
_MAX_OPTION = 60


class PlanStep(Arguments):
    text: str = Field(min_length=1, max_length=500, description="The step, in a few words.")
    status: PlanStatus = Field(description="The state of the step.")


class PlanArguments(Arguments):
    entries: list[PlanStep] = Field(
        max_length=100, description="The entire plan, in order. It replaces the previous plan."
    )


class ShowPlan(Tool[PlanArguments]):
    name: ClassVar[str] = "plan"
    description: ClassVar[str] = (
        "Show the user a plan with the state of each step. Use it for work with several steps, and send it again when "
        "a step starts or is completed."
    )
    read_only: ClassVar[bool] = True
    arguments = PlanArguments

    def title(self, args: PlanArguments) -> str:
        count = sum(entry.status == "completed" for entry in args.entries)
        return f"plan ({count} of {len(args.entries)} done)"

    async def run(self, args: PlanArguments, context: ToolContext) -> ToolOutput:  # noqa: ARG002 - part of the signature
        plan = tuple(PlanEntry(sanitize_message(entry.text), entry.status) for entry in args.entries)
        return ToolOutput("The plan is shown.", plan=plan)


class AskUserArguments(Arguments):
    question: str = Field(
        min_length=1, max_length=2000, description="One question that can be answered with one of the options."
    )
    options: list[str] = Field(
        min_length=1, max_length=8, description="The answers to choose from, distinct, at most 60 characters each."
    )


class AskUser(Tool[AskUserArguments]):
    """A tool that asks the user a question. It is not read-only, so that only one question appears at a time."""

    name: ClassVar[str] = "ask_user"
    title_template: ClassVar[str] = "ask: {question}"
    description: ClassVar[str] = (
        "Ask the user to choose between options. Use it only if different interpretations of the request lead to "
        "different results. The user may not answer."
    )
    arguments = AskUserArguments

    async def run(self, args: AskUserArguments, context: ToolContext) -> ToolOutput:
        options = {to_one_line(option): option.strip() for option in args.options}
        if not all(options) or len(options) != len(args.options):
            raise ToolFailed("The options must be distinct and not empty.")
        if max(map(len, options)) > _MAX_OPTION:
            raise ToolFailed(f"An option is longer than {_MAX_OPTION} characters. Shorten it and ask again.")
        answer = await context.ask(f"The model asks: {args.question}", tuple(options))
        if answer is None or answer not in options:
            raise ToolFailed(
                "The user did not answer. Choose the safest interpretation and say so, or end with the question."
            )
        return ToolOutput(f"The user chose: {options[answer]}")


Mode = Literal["agent", "ask", "plan", "none"]

# The order of the tools in every request. A new order would invalidate the provider's prompt cache.
TOOLS: tuple[AnyTool, ...] = (
    ReadFile(),
    ListFiles(),
    SearchText(),
    OutlineFile(),
    ReadDiagnostics(),
    FindDefinition(),
    FindReferences(),
    EditFile(),
    WriteFile(),
    RenameFile(),
    DeleteFile(),
    AskUser(),
    ShowPlan(),
)

# The tools of a turn if the user has enabled commands.
TOOLS_WITH_COMMANDS: tuple[AnyTool, ...] = (*TOOLS, RunCommand())

# The tool of sessions with skills. It comes after all others.
READ_SKILL: AnyTool = ReadSkill()


def select_tools(mode: Mode, tools: tuple[AnyTool, ...] = TOOLS) -> tuple[AnyTool, ...]:
    """Select the tools for a mode.

    `agent` selects all tools, and `none` selects no tools. `ask` and `plan` select the tools that neither change files
    nor run commands.
    """
    if mode == "none":
        return ()
    return tools if mode == "agent" else tuple(tool for tool in tools if not (tool.edits or tool.runs))


@lru_cache(maxsize=8)
def build_tool_specs(tools: tuple[AnyTool, ...]) -> tuple[ToolSpec, ...]:
    """Build the tool specifications for the model. The result is cached, because building schemas is slow."""
    return tuple(tool.build_spec() for tool in tools)
