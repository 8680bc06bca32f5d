"""The `read_skill` tool, which returns the instructions and the files of a skill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.text_safety import format_path
from thinklsp.core.tool_type import ToolOutput
from thinklsp.tools.skill_files import MAX_NAME_CHARACTERS, Skill
from thinklsp.tools.tool import Arguments, Tool, ToolContext, run_in_thread

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
