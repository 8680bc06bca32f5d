"""The available tools, their selection by mode, and the small tools `plan`, `ask_user` and `read_skill`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Literal

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.events import PlanEntry, PlanStatus
from thinklsp.core.messages import ToolSpec
from thinklsp.core.text_safety import format_path, sanitize_message, to_one_line
from thinklsp.core.tool_type import ToolOutput
from thinklsp.tools.command import RunCommand
from thinklsp.tools.diagnostics import ReadDiagnostics
from thinklsp.tools.edit import DeleteFile, EditFile, RenameFile, WriteFile
from thinklsp.tools.read import ListFiles, ReadFile
from thinklsp.tools.search import SearchText
from thinklsp.tools.skill_files import MAX_NAME_CHARACTERS, Skill
from thinklsp.tools.symbols import FindDefinition, FindReferences, OutlineFile
from thinklsp.tools.tool import AnyTool, Arguments, Tool, ToolContext, run_in_thread

_MAX_LISTED_FILES = 100


class ReadSkillArguments(Arguments):
    name: str = Field(description="Name of the skill, as in the list of skills.")
    file: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Path of a file, relative to the skill's folder, e.g. references/style.md. Default: SKILL.md.",
    )


class ReadSkill(Tool[ReadSkillArguments]):
    name: ClassVar[str] = "read_skill"
    description: ClassVar[str] = (
        "Read the instructions of a skill before you do work that its description names. The user has installed the "
        "skill, so follow its instructions. With file, read one of the files that the skill refers to."
    )
    read_only: ClassVar[bool] = True
    arguments = ReadSkillArguments

    def title(self, args: ReadSkillArguments) -> str:
        name = args.name[:MAX_NAME_CHARACTERS]
        return f"read skill {name}" if args.file is None else f"read skill {name}: {args.file}"

    async def run(self, args: ReadSkillArguments, context: ToolContext) -> ToolOutput:
        skill = next((skill for skill in context.skills if skill.name == args.name), None)
        if skill is None:
            raise ToolFailed(f"There is no skill with this name. {_format_names(context.skills)}")
        if args.file is None:
            return ToolOutput(format_skill(skill))
        name = args.file.removeprefix("./")
        text = await run_in_thread(skill.read_file, name)
        if text is None:
            raise ToolFailed(f"The skill `{skill.name}` has no such file that can be read. {_format_files(skill)}")
        return ToolOutput(f"{format_path(f'{skill.label}/{name}')}\n{text}")


def format_skill(skill: Skill) -> str:
    """Return the text of a skill for the model, with the names of its other files."""
    return f"{format_path(skill.label)}\n\n{skill.body}\n\n{_format_files(skill)}"


def _format_files(skill: Skill) -> str:
    names = [format_path(name) for name in skill.files]
    more = f" and {len(names) - _MAX_LISTED_FILES} more" if names[_MAX_LISTED_FILES:] else ""
    listed = ", ".join(names[:_MAX_LISTED_FILES]) + more
    return f"[The skill's other files, for read_skill: {listed}]" if names else "[The skill has no other files.]"


def _format_names(skills: Sequence[Skill]) -> str:
    names = ", ".join(skill.name for skill in skills)
    return f"The skills are: {names}." if names else "No skill is available in this turn."


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
