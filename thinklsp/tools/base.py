"""What every tool is, and how one call of one is made: arguments checked, errors told as results, output bounded.

A tool never ends a turn. Whatever goes wrong inside becomes an error result that says what to do; only cancellation
passes through.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.events import PlanEntry
from thinklsp.core.messages import ToolSpec, ToolUseBlock
from thinklsp.tools.commands import Commands
from thinklsp.tools.editor import Editor, NoEditor
from thinklsp.tools.shown import RESULT_LIMIT, bounded, visible
from thinklsp.tools.threads import in_thread_if_long
from thinklsp.workspace.overlay import EditOverlay

_LOG = logging.getLogger(__name__)
_LONGEST_TITLE = 120
_LONGEST_SOURCE = 1_000

Ask = Callable[[str, tuple[str, ...]], Awaitable[str | None]]
"""Question and options to the user; None when it was dismissed or not answered in time."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a call may use. The overlay belongs to the turn; without `commands` none can be run."""

    overlay: EditOverlay
    ask: Ask
    editor: Editor = field(default_factory=NoEditor)
    commands: Commands | None = None


@dataclass(frozen=True, slots=True)
class ToolOutput:
    text: str
    is_error: bool = False
    plan: tuple[PlanEntry, ...] | None = None


class Arguments(BaseModel):
    """Base of all argument models: unknown fields are refused, so no call can carry a switch we did not offer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, given: Any) -> Any:
        """Models write null for an argument that they do not give; where it may be absent, it is."""
        if not isinstance(given, dict):
            return given
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in given.items() if value is not None or name not in optional}


Args = TypeVar("Args", bound=Arguments)


class Tool(ABC, Generic[Args]):
    """`read_only`: calls of one message may run side by side. `edits`: changes files, `runs`: runs commands; neither is
    for `ask` and `plan`."""

    name: ClassVar[str]
    description: ClassVar[str]
    read_only: ClassVar[bool] = False
    edits: ClassVar[bool] = False
    runs: ClassVar[bool] = False
    arguments: type[Args]

    @abstractmethod
    def title(self, args: Args) -> str:
        """A short line for people, e.g. ``read src/app.py``."""

    @abstractmethod
    async def run(self, args: Args, context: ToolContext) -> ToolOutput:
        """Raises ToolFailed or PathRefused with a sentence for the model."""

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, schema_of(self.arguments))


AnyTool = Tool[Any]


def describe(tool_use: ToolUseBlock, tools: Sequence[AnyTool]) -> str:
    """The title of a call, before it runs; its name where the arguments make no sense."""
    tool = _find(tool_use.name, tools)
    if tool is None or tool_use.input is None:
        return bounded(visible(tool_use.name[:_LONGEST_SOURCE]), _LONGEST_TITLE)
    try:
        title = tool.title(tool.arguments.model_validate(tool_use.input))
    except ValidationError:
        title = tool.name
    # The path in it may be a megabyte long.
    line = " ".join(visible(title[:_LONGEST_SOURCE]).split())
    return line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE - 1] + "…"


async def call(tool_use: ToolUseBlock, tools: Sequence[AnyTool], context: ToolContext) -> ToolOutput:
    """Runs one call to its result. Raises nothing but what cancels the turn."""
    tool = _find(tool_use.name, tools)
    if tool is None:
        known = ", ".join(tool.name for tool in tools)
        return _failure(f"There is no tool `{tool_use.name[:100]}` in this turn. The tools are: {known}.")
    if tool_use.input is None:
        return _failure(f"The arguments of `{tool.name}` were not valid JSON. Send them again as one JSON object.")
    try:
        args = tool.arguments.model_validate(tool_use.input)
    except ValidationError as error:
        return _failure(" ".join(_sentences(error, tool)))
    try:
        output = await tool.run(args, context)
    except (ToolFailed, PathRefused) as error:
        return _failure(str(error))
    except Exception as error:  # noqa: BLE001 - one faulty tool must not end the turn; the log has the kind of it.
        _LOG.error("tool %s failed", tool.name, exc_info=error)
        return _failure(f"`{tool.name}` failed because of a fault in thinklsp. Try another way.")
    return replace(output, text=bounded(await in_thread_if_long(len(output.text), visible, output.text)))


@cache
def schema_of(arguments: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema in the plain form that every provider takes: no references, no titles, optional means absent."""
    schema = arguments.model_json_schema()
    definitions = schema.pop("$defs", {})
    plain = _plain(schema, definitions)
    # The docstring of the model is for us.
    plain.pop("description", None)
    result: dict[str, Any] = json.loads(json.dumps(plain))
    return result


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        # As above: the docstring of a nested model is no description of the argument.
        bare = {key: value for key, value in target.items() if key != "description"}
        schema = bare | {key: value for key, value in schema.items() if key != "$ref"}
    if "anyOf" in schema:
        choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        schema = choices[0] | rest if len(choices) == 1 else rest | {"anyOf": choices}
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" or (key == "default" and value is None):
            continue
        if key == "properties":
            plain[key] = {name: _plain(inner, definitions) for name, inner in value.items()}
        elif isinstance(value, dict) and key == "items":
            plain[key] = _plain(value, definitions)
        else:
            plain[key] = value
    return plain


def _find(name: str, tools: Sequence[AnyTool]) -> AnyTool | None:
    return next((tool for tool in tools if tool.name == name), None)


def _failure(sentence: str) -> ToolOutput:
    return ToolOutput(bounded(visible(sentence[:RESULT_LIMIT])), is_error=True)


def _sentences(error: ValidationError, tool: AnyTool) -> list[str]:
    """One per wrong argument, without the value: the model knows what it sent."""
    known = ", ".join(tool.arguments.model_fields)
    sentences = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False)[:10]:
        name = ".".join(str(step) for step in problem["loc"])[:100]
        match problem["type"]:
            case "missing":
                sentences.append(f"The argument `{name}` of `{tool.name}` is missing.")
            case "extra_forbidden":
                sentences.append(f"`{tool.name}` has no argument `{name}`; its arguments are: {known}.")
            case _:
                sentences.append(f"The argument `{name}` of `{tool.name}` is wrong: {problem['msg']}.")
    return sentences
