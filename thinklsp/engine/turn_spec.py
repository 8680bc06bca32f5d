"""What is asked for: of which kind, about which places, and the user's message that comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thinklsp.agent.prompts import READING, TESTED, Excerpt, action_prompt, chat_prompt, own_prompt, readable_folders
from thinklsp.core.errors import TurnRefused
from thinklsp.core.lines import split_lines
from thinklsp.core.problems import Diagnosed, Problem
from thinklsp.engine.changes import Wanted, changes_of
from thinklsp.settings.own_actions import ActionSection
from thinklsp.tools.registry import Mode
from thinklsp.tools.shown import shown_name, visible
from thinklsp.workspace.view import WorkspaceView

_EXCERPT_LINES = 400
_MODES: Mapping[str, Mode] = {"all": "agent", "read": "ask", "none": "none"}


@dataclass(frozen=True, slots=True)
class Reference:
    """Part of a document that belongs to the request. `lines` count from 1, both ends included; None: all of it."""

    uri: str
    lines: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ChatTask:
    """`diagnosed`: what the editor says about a file that the prompt is about."""

    prompt: str
    references: tuple[Reference, ...] = ()
    mode: Mode = "agent"
    diagnosed: Diagnosed | None = None


@dataclass(frozen=True, slots=True)
class ActionTask:
    """`place` None: about no file in particular. `own`: the user's own action of this name. `changes`: which of those
    since the last commit belong to it; with `all`, the place may be a folder, with `staged`, it counts for nothing."""

    name: str
    place: Reference | None
    problems: tuple[Problem, ...] = ()
    instruction: str = ""
    own: ActionSection | None = None
    changes: Wanted = ""


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Shorten the session's conversation. `instructions`: what the user wants to be kept."""

    instructions: str = ""


@dataclass(frozen=True, slots=True)
class TurnSpec:
    """What is asked for. `workspace` is the key that sessions are found by; `session_id` None begins a new session.

    `title` names the turn's edit for people. `effort`, `model` and `thinking` (a value of `thinking.mode`) are the
    command's own arguments and beat settings.
    """

    title: str
    task: ChatTask | ActionTask | CompactTask
    view: WorkspaceView
    workspace: str
    session_id: str | None = None
    effort: str | None = None
    model: str | None = None
    thinking: str | None = None

    @property
    def chosen(self) -> Mapping[str, str]:
        """The settings that the command's own arguments set."""
        named = {"effort": self.effort, "model": self.model, "thinking.mode": self.thinking}
        return {key: value for key, value in named.items() if value is not None}

    @property
    def mode(self) -> Mode:
        if isinstance(self.task, ChatTask):
            return self.task.mode
        if isinstance(self.task, CompactTask):
            return "ask"
        if self.task.own is not None:
            return _MODES[self.task.own.tools]
        return "ask" if self.task.name in READING else "agent"

    @property
    def tested(self) -> bool:
        """Whether it is work whose edits are tested before they are offered, where commands can be run."""
        if isinstance(self.task, ActionTask) and self.task.own is None:
            return self.task.name in TESTED
        return self.mode == "agent"

    @property
    def about(self) -> tuple[str, ...]:
        """URIs of the documents that it is about."""
        if isinstance(self.task, ChatTask):
            return tuple(reference.uri for reference in self.task.references)
        place = self.task.place if isinstance(self.task, ActionTask) else None
        return () if place is None else (place.uri,)


def about_of(spec: TurnSpec) -> str:
    """An action's own words are the same every time; where it was asked for is not."""
    if not isinstance(spec.task, ActionTask):
        return ""
    return f"{spec.title}: {spec.task.instruction}" if spec.task.instruction else spec.title


def prompt_of(spec: TurnSpec) -> str:
    """Return what the user asked for, in their own words; empty if the turn asks nothing of the model."""
    if isinstance(spec.task, ChatTask):
        return spec.task.prompt
    return about_of(spec)


async def changes_for(spec: TurnSpec) -> str:
    """What is told of the changes that belong to the task. Raises TurnRefused where there must be some and are none."""
    if not isinstance(spec.task, ActionTask):
        return ""
    place = spec.task.place
    return await changes_of(spec.view, None if place is None else place.uri, spec.task.changes)


def user_text(spec: TurnSpec, changes: str = "") -> str:
    """The user's message: what they ask, with the places that it is about; empty where nothing is asked. `changes` as
    `changes_for` tells them.

    Raises TurnRefused for an empty prompt."""
    task = spec.task
    if isinstance(task, CompactTask):
        return ""
    if isinstance(task, ChatTask):
        if not task.prompt.strip():
            raise TurnRefused("There is nothing to send: the prompt is empty.")
        excerpts = [excerpt(spec.view, place) for place in task.references]
        text = chat_prompt(task.prompt, excerpts, task.mode, task.diagnosed)
    else:
        without = task.place is None or task.changes in ("all", "staged")
        place = None if task.place is None or without else excerpt(spec.view, task.place)
        if task.own is None:
            text = action_prompt(
                task.name, place, problems=task.problems, instruction=task.instruction, changes=changes
            )
        else:
            words = "\n\nInstruction: ".join(filter(None, (task.own.prompt, task.instruction)))
            text = own_prompt(words, spec.mode, excerpt=place, changes=changes)
    if spec.view.extra:
        folders = {folder.name: shown_name(folder.root.path) for folder in spec.view.extra}
        text = f"{text}\n\n{readable_folders(folders)}"
    # Editors can send half of a character pair; a service refuses it, now and in every later request of the session.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def excerpt(view: WorkspaceView, reference: Reference) -> Excerpt:
    """The lines that a reference points to, at most 400 of them: the model reads further by itself."""
    place = view.resolve(reference.uri)
    found = view.read(place)
    if found is None:
        raise TurnRefused(f"There is no file {place.shown} to refer to.")
    lines = split_lines(found.text) or [""]
    first, last = reference.lines or (1, len(lines))
    first = max(1, min(first, len(lines)))
    last = max(first, min(last, len(lines), first + _EXCERPT_LINES - 1))
    text = visible("\n".join(line.rstrip("\r\n") for line in lines[first - 1 : last]))
    return Excerpt(place.shown, first, last, text, len(lines))
