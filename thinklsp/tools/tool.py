"""The base class for tools, what a tool call can use, and the code that runs tool calls.

A failed tool does not end the turn. Instead, the model receives an error message with advice on how to continue. Only
cancellations are raised.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar, Generic, Literal, ParamSpec, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.events import CallLocation
from thinklsp.core.messages import AssistantMessage, ContentBlock, ToolSpec, ToolUseBlock
from thinklsp.core.text_safety import RESULT_LIMIT, escape_invisible, mask_keys, to_one_line, truncate
from thinklsp.core.tool_type import Ask, AskText, TextKeeper, ToolOutput, ToolType
from thinklsp.sandbox.process import CommandResult
from thinklsp.tools.skill_files import Skill
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import WorkspaceView


@dataclass(frozen=True, slots=True)
class Point:
    """A position in a document.

    `line` starts at 1. `column` starts at 0 and counts code points. `text` is the document's text as the tool knows it.
    If the editor has a different text, no query is sent. `is_open` is true if the document is open in the editor.
    """

    uri: str
    text: str
    line: int
    column: int
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """The location of a symbol. Lines are numbered from 1, and the last line is included."""

    uri: str
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A symbol that the editor's language servers have reported.

    `container` is the name of the enclosing symbol, or empty. `depth` is the number of enclosing symbols in the
    response.
    """

    name: str
    kind: str
    target: Target
    container: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class NamedTargets:
    """Up to 2,000 symbols in the editor's order.

    `unreadable_count` is the number of malformed symbols, which are skipped. `is_cut` is true if the editor reported
    more symbols.
    """

    symbols: tuple[NamedTarget, ...]
    unreadable_count: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class DiagnosedDocument:
    """The diagnostics that the editor reports for a document.

    If the document is open, `text` is its current text. `is_outdated` is true if the diagnostics refer to an earlier
    version. In this case, only diagnostics on unchanged lines are included. `unreadable_count` is the number of
    malformed diagnostics.
    """

    uri: str
    problems: tuple[EditorDiagnostic, ...]
    text: str | None = None
    is_outdated: bool = False
    unreadable_count: int = 0


EditorFailure = Literal["silent", "refused", "unreadable"]
"""The reason why an editor did not give a useful answer: a timeout, an error, or an answer in an unexpected format."""


@dataclass(frozen=True, slots=True)
class EditorDiagnostics:
    """The diagnostics that an editor reports.

    If `is_complete` is true, all of the editor's language servers have reported. Otherwise, documents may have more
    problems than listed, and `failure` explains why.
    """

    documents: tuple[DiagnosedDocument, ...]
    is_complete: bool
    failure: EditorFailure | None = None


class Editor(Protocol):
    async def load_documents(self, view: WorkspaceView, paths: Sequence[str]) -> None:
        """Add the editor's text of these files to the view before a tool uses them.

        Only an editor that does not announce its open documents does something here. Paths that tools may not read are
        skipped.
        """

    async def fetch_diagnostics(self, uri: str | None) -> EditorDiagnostics | None:
        """Return the diagnostics of the documents' current versions, after waiting for a limited time.

        If `uri` is None, the diagnostics of all documents are returned.
        """

    async def find_definition(self, point: Point) -> tuple[Target, ...] | None: ...

    async def find_references(self, point: Point) -> tuple[Target, ...] | None: ...

    async def fetch_hover(self, point: Point) -> str | None:
        """Return up to 3,000 characters of the editor's hover text for a symbol, or None if there is no text."""

    async def fetch_outline(self, document: Point) -> NamedTargets | None:
        """Return the symbols in a document. The line and column of `document` are ignored."""

    async def find_symbols(self, query: str) -> NamedTargets | None:
        """Return the workspace symbols that match a query. Each language server decides which symbols match."""


async def _answer_none(_editor: object, _argument: object) -> None:
    return None


class NoEditor:
    """A placeholder for sessions without an editor. The answer to every query is None."""

    async def load_documents(self, view: WorkspaceView, paths: Sequence[str]) -> None:
        """Do nothing, because the view already contains every open document."""

    fetch_diagnostics = find_definition = find_references = fetch_hover = fetch_outline = find_symbols = _answer_none


_MAX_THREADS = 2
# The thread pool for tools. Its threads start on first use.
_pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="thinklsp-tools")

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run_in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run `work` in a thread of the tool pool.

    If the call is cancelled before the thread starts, `work` does not run.
    """
    return await asyncio.get_running_loop().run_in_executor(_pool, partial(work, *args, **kwargs))


_MAX_INLINE_CHARACTERS = 10_000


async def run_in_thread_if_long(length: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run `work` in a thread if the text is long, and directly otherwise.

    `length` is the text's length in characters. Short texts do not delay other requests, because they take about a
    microsecond per character.
    """
    return work(*args, **kwargs) if length <= _MAX_INLINE_CHARACTERS else await run_in_thread(work, *args, **kwargs)


_LOG = logging.getLogger(__name__)
_NAME_SEPARATOR = re.compile(r"[^\w-]+")
_MAX_TITLE = 120
_MAX_TITLE_SOURCE = 1_000


class NotPermitted(ToolFailed):
    """Raised if the user or the user's rules forbid a command."""


class Commands(Protocol):
    """The commands of a turn. Each command requires the user's permission."""

    async def is_permitted(self, argv: Sequence[str], folder: str | None) -> bool:
        """Return True if the command can run without asking the user."""

    async def run(
        self,
        argv: Sequence[str],
        overlay: EditOverlay,
        *,
        folder: str | None,
        seconds: float | None,
        fresh: bool = False,
    ) -> CommandResult:
        """Run a command and all processes that it starts on a copy of the workspace, and wait until they exit.

        `folder` is the working folder, or None for the first workspace folder. If `seconds` is None, the default time
        limit applies. If `fresh` is true, the copy contains no files from earlier commands. Raises NotPermitted, or
        ToolFailed or PathRefused with a message for the model if the command cannot run.
        """


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The resources that a tool call can use.

    The overlay belongs to the turn. If `commands` is None, the tool cannot run commands. `skills` contains the turn's
    skills, sorted by name. If `texts` is None, the session keeps no long texts. If `ask_text` is None, the client
    cannot ask for a text.
    """

    overlay: EditOverlay
    ask: Ask
    editor: Editor = field(default_factory=NoEditor)
    commands: Commands | None = None
    skills: tuple[Skill, ...] = ()
    texts: TextKeeper | None = None
    ask_text: AskText | None = None


class Arguments(BaseModel):
    """The base class for the arguments of tools.

    Unknown fields are rejected.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, values: Any) -> Any:
        """Remove null values for optional arguments, because models send null instead of omitting an argument."""
        if not isinstance(values, dict):
            return values
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in values.items() if value is not None or name not in optional}


Args = TypeVar("Args", bound=Arguments)


class Tool(ABC, Generic[Args]):
    """The base class for built-in tools, whose arguments are a pydantic model."""

    name: ClassVar[str]
    title_template: ClassVar[str]
    description: ClassVar[str]
    read_only: ClassVar[bool] = False
    edits: ClassVar[bool] = False
    runs: ClassVar[bool] = False
    arguments: type[Args]

    def title(self, args: Args) -> str:
        """Return a short title for the tool call, such as `read src/app.py`.

        By default, the title is `title_template` filled with the arguments.
        """
        return self.title_template.format_map(dict(args))

    def list_paths(self, args: Args) -> tuple[str, ...]:
        """Return the paths of the files that the call names, as the model wrote them."""
        paths = (getattr(args, name, None) for name in ("path", "new_path"))
        return tuple(path for path in paths if isinstance(path, str))

    @abstractmethod
    async def run(self, args: Args, context: ToolContext) -> ToolOutput:
        """Run the tool. Raises ToolFailed or PathRefused with a message for the model."""

    def build_spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, build_arguments_schema(self.arguments))

    def format_title(self, arguments: Mapping[str, Any]) -> str:
        try:
            return self.title(self.arguments.model_validate(arguments))
        except ValidationError:
            return self.name

    def find_location(self, arguments: Mapping[str, Any]) -> CallLocation | None:
        try:
            args = self.arguments.model_validate(arguments)
        except ValidationError:
            return None
        paths = self.list_paths(args)
        return CallLocation(paths[0], getattr(args, "start_line", None)) if paths else None

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            args = self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise ToolFailed(" ".join(_describe_errors(error, self))) from None
        await context.editor.load_documents(context.overlay.view, self.list_paths(args))
        return await self.run(args, context)


AnyTool = ToolType[ToolContext]


def describe(tool_use: ToolUseBlock, tools: Sequence[AnyTool]) -> str:
    """Return a title for a tool call before it runs. If the arguments are invalid, the title is the tool's name.

    The title may contain arguments, so its keys are masked, as in the arguments themselves.
    """
    tool = _find(tool_use.name, tools)
    if tool is None or tool_use.input is None:
        return truncate(mask_keys(to_one_line(tool_use.name[:_MAX_TITLE_SOURCE])), _MAX_TITLE)
    # Truncate the title before escaping it, because it may contain a very long path. Mask it before the last cut, so
    # that no part of a key remains.
    line = mask_keys(to_one_line(tool.format_title(tool_use.input)[:_MAX_TITLE_SOURCE]))
    return line if len(line) <= _MAX_TITLE else line[: _MAX_TITLE - 1] + "…"


def find_location(tool_use: ToolUseBlock, tools: Sequence[AnyTool]) -> CallLocation | None:
    """Return the file that a tool call is about, or None if there is none."""
    tool = _find(tool_use.name, tools)
    return None if tool is None or tool_use.input is None else tool.find_location(tool_use.input)


def resolve_tool_names(message: AssistantMessage, tools: Sequence[AnyTool]) -> AssistantMessage:
    """Return the message with the names of the tools that its calls mean.

    Some models write a prefix, a residue of their template, or other capitals, such as `functions.Edit_File<|call|>`.
    An unknown name counts as a tool's only if exactly one tool has the name of one of its parts.
    """
    names = {tool.name for tool in tools}

    def resolve(block: ContentBlock) -> ContentBlock:
        if not isinstance(block, ToolUseBlock) or block.name in names:
            return block
        parts = {part.casefold() for part in _NAME_SEPARATOR.split(block.name)}
        meant = [name for name in names if name.casefold() in parts]
        return replace(block, name=meant[0]) if len(meant) == 1 else block

    return replace(message, blocks=tuple(map(resolve, message.blocks)))


async def call(tool_use: ToolUseBlock, tools: Sequence[AnyTool], context: ToolContext) -> ToolOutput:
    """Run a tool call and return its result, even if the tool fails. Only cancellations are raised."""
    tool = _find(tool_use.name, tools)
    if tool is None:
        tool_names = ", ".join(tool.name for tool in tools)
        return _build_error_output(
            f"There is no tool `{tool_use.name[:100]}` in this turn. The tools are: {tool_names}."
        )
    if tool_use.input is None:
        return _build_error_output(
            f"The arguments of `{tool.name}` were not valid JSON. Send them again as one JSON object."
        )
    try:
        output = await tool.call(tool_use.input, context)
    except (ToolFailed, PathRefused) as error:
        return _build_error_output(str(error))
    except Exception as error:  # noqa: BLE001 - a bug in one tool must not end the turn
        _LOG.error("tool %s failed", tool.name, exc_info=error)
        return _build_error_output(f"`{tool.name}` failed because of a bug in thinklsp. Try another way.")
    return replace(output, text=truncate(await run_in_thread_if_long(len(output.text), escape_invisible, output.text)))


@cache
def build_arguments_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """Return a JSON Schema that every provider accepts.

    The schema contains no references or titles. Optional arguments can be omitted but cannot be null.
    """
    schema = arguments.model_json_schema()
    definitions = schema.pop("$defs", {})
    plain = _simplify_schema(schema, definitions)
    # The docstring of an arguments class is meant for developers, not for the model.
    plain.pop("description", None)
    result: dict[str, Any] = json.loads(json.dumps(plain))
    return result


def _simplify_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        # The docstring of a nested arguments class is meant for developers, not for the model.
        bare = {key: value for key, value in target.items() if key != "description"}
        schema = bare | {key: value for key, value in schema.items() if key != "$ref"}
    if "anyOf" in schema:
        choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        schema = choices[0] | rest if len(choices) == 1 else rest | {"anyOf": choices}
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            plain[key] = {name: _simplify_schema(inner, definitions) for name, inner in value.items()}
        elif key != "title" and not (key == "default" and value is None):
            plain[key] = _simplify_schema(value, definitions) if key == "items" and isinstance(value, dict) else value
    return plain


def _find(name: str, tools: Sequence[AnyTool]) -> AnyTool | None:
    return next((tool for tool in tools if tool.name == name), None)


def _build_error_output(sentence: str) -> ToolOutput:
    return ToolOutput(truncate(escape_invisible(sentence[:RESULT_LIMIT])), is_error=True)


def _describe_errors(error: ValidationError, tool: Tool[Any]) -> list[str]:
    """Return a message for each invalid argument. The messages do not repeat the values of arguments."""
    argument_names = ", ".join(tool.arguments.model_fields)
    sentences = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False)[:10]:
        name = ".".join(str(step) for step in problem["loc"])[:100]
        match problem["type"]:
            case "missing":
                sentences.append(f"The argument `{name}` of `{tool.name}` is missing.")
            case "extra_forbidden":
                sentences.append(f"`{tool.name}` has no argument `{name}`; its arguments are: {argument_names}.")
            case _:
                sentences.append(f"The argument `{name}` of `{tool.name}` is wrong: {problem['msg']}.")
    return sentences
