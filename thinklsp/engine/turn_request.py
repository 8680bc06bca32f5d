"""Requests for turns, the files and images that they refer to, and the prompts that thinklsp builds from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, assert_never

from thinklsp.agent.prompts import (
    READ_ONLY_ACTIONS,
    TESTED_ACTIONS,
    Excerpt,
    build_action_prompt,
    build_chat_prompt,
    build_custom_prompt,
    format_changes,
    format_readable_folders,
)
from thinklsp.core.check_results import EditorDiagnostic, FileDiagnostics
from thinklsp.core.errors import ImageRefused, PathRefused, ToolFailed, TurnRefused
from thinklsp.core.images import (
    MAX_IMAGE_BYTES,
    check_totals,
    describe_image,
    find_image_type,
    format_type_names,
    list_images,
    parse_image,
)
from thinklsp.core.lines import split_lines
from thinklsp.core.markdown import filter_outside_fences
from thinklsp.core.messages import Conversation, ImageBlock, describe_text
from thinklsp.core.prompt_syntax import find_mentions, remove_comment_note, write_mention
from thinklsp.core.text_safety import can_restore, escape_invisible, format_path
from thinklsp.providers.catalogue import ModelInfo
from thinklsp.settings.user_file import ActionSection
from thinklsp.tools.git import find_changes
from thinklsp.tools.registry import Mode
from thinklsp.workspace.uri import uri_to_path
from thinklsp.workspace.view import WorkspaceView

if TYPE_CHECKING:
    from thinklsp.mcp_client.server_entries import ClientEntry

ChangeScope = Literal["", "of the place", "all", "staged"]
"""The changes since the last commit that a request includes.

`of the place`: the changes of the request's file, if git reports any. `all`: the changes in the working tree or in a
folder. `staged`: the changes for the next commit. A request for `all` or `staged` fails if there are no changes.
"""

_MAX_EXCERPT_LINES = 400
_MODES: Mapping[str, Mode] = {"all": "agent", "read": "ask", "none": "none"}
_NOTHING_STAGED = "No changes are staged. Stage changes with `git add` first."


@dataclass(frozen=True, slots=True)
class Reference:
    """A document, or a range of lines in a document, that a request refers to.

    `lines` contains the first and the last line, numbered from 1. It is None for the whole document.
    """

    uri: str
    lines: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request for a turn. If `session_id` is None, the turn starts a new session in the workspace.

    `title` labels the turn's edit in the editor. `effort`, `model` and `thinking` override the user's settings.
    """

    title: str
    view: WorkspaceView
    workspace: str
    session_id: str | None = None
    effort: str | None = None
    model: str | None = None
    thinking: str | None = None

    @property
    def chosen(self) -> Mapping[str, str]:
        """The settings that come from the command's arguments."""
        arguments = {"effort": self.effort, "model": self.model, "thinking.mode": self.thinking}
        return {key: value for key, value in arguments.items() if value is not None}

    @property
    def user_words(self) -> str:
        """The text that the user entered. It is empty for requests without a prompt."""
        return ""

    @property
    def places(self) -> tuple[Reference, ...]:
        """The documents and line ranges that the request refers to."""
        return ()

    @property
    def should_verify(self) -> bool:
        """True if the turn tests its edits before offering them to the user, provided that commands are enabled."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest(_Request):
    """A chat prompt. `diagnosed` contains the editor's diagnostics for a file that the prompt mentions.

    `attachments` are texts, and `images` are images, that the client sent along with the prompt. `skills` contains the
    names of the skills that the user chose for this prompt. `client_servers` are the MCP servers that the client names
    for the session.
    """

    title: str = "chat"
    prompt: str
    references: tuple[Reference, ...] = ()
    mode: Mode = "agent"
    diagnosed: FileDiagnostics | None = None
    attachments: tuple[Excerpt, ...] = ()
    skills: tuple[str, ...] = ()
    client_servers: tuple[ClientEntry, ...] = ()
    images: tuple[ImageBlock, ...] = ()

    @property
    def user_words(self) -> str:
        return self.prompt

    @property
    def should_verify(self) -> bool:
        return self.mode == "agent"

    @property
    def places(self) -> tuple[Reference, ...]:
        return self.references


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRequest(_Request):
    """A request to run an action. `place` is None if the action does not refer to a file.

    `own_action` is set if the user defined the action. If `changes` is `all`, the place may be a folder. If `changes`
    is `staged`, the place is ignored.
    """

    name: str
    place: Reference | None
    problems: tuple[EditorDiagnostic, ...] = ()
    instruction: str = ""
    own_action: ActionSection | None = None
    changes: ChangeScope = ""

    @property
    def user_words(self) -> str:
        """The action's title, which includes the file name, and the user's instruction."""
        words = remove_comment_note(self.instruction)
        return f"{self.title}: {words}" if words else self.title

    @property
    def mode(self) -> Mode:
        if self.own_action is not None:
            return _MODES[self.own_action.tools]
        return "ask" if self.name in READ_ONLY_ACTIONS else "agent"

    @property
    def should_verify(self) -> bool:
        return self.mode == "agent" if self.own_action is not None else self.name in TESTED_ACTIONS

    @property
    def places(self) -> tuple[Reference, ...]:
        return () if self.place is None else (self.place,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest(_Request):
    """A request to compact the session's conversation. `instructions` are the user's instructions for the summary."""

    title: str = "compact"
    mode: Mode = "ask"
    instructions: str = ""


TurnRequest = ChatRequest | ActionRequest | CompactRequest


def read_excerpts(request: TurnRequest) -> tuple[Excerpt, ...]:
    """Read the parts of documents that the request refers to.

    Raises TurnRefused for an empty prompt or a missing file, and PathRefused for a file that tools may not read.
    """
    if isinstance(request, ChatRequest) and not request.prompt.strip():
        raise TurnRefused("There is nothing to send: the prompt is empty. Enter a prompt first.")
    if isinstance(request, ActionRequest) and request.changes in ("all", "staged"):
        return ()
    attachments = request.attachments if isinstance(request, ChatRequest) else ()
    places = (place for place in request.places if not (isinstance(request, ChatRequest) and is_image(place)))
    return (*(_read_excerpt(request.view, place) for place in places), *attachments)


def is_image(place: Reference) -> bool:
    """Return True if the prompt includes the file as an image."""
    return place.lines is None and find_image_type(place.uri) is not None


def build_excerpt(label: str, text: str, lines: tuple[int, int] | None = None, key: str | None = None) -> Excerpt:
    """Return an excerpt with these lines of a text, numbered from 1, up to a maximum of 400 lines.

    `key` identifies the file of the workspace that has this text.
    """
    text_lines = split_lines(text.removeprefix("\ufeff")) or [""]
    first, last = lines or (1, len(text_lines))
    first = max(1, min(first, len(text_lines)))
    last = max(first, min(last, len(text_lines), first + _MAX_EXCERPT_LINES - 1))
    plain = "\n".join(line.rstrip("\r\n") for line in text_lines[first - 1 : last])
    excerpt = escape_invisible(plain)
    is_whole = (first, last) == (1, len(text_lines)) and can_restore(excerpt, plain)
    sight = () if key is None else (describe_text(key, text, is_whole=is_whole),)
    return Excerpt(label, first, last, excerpt, len(text_lines), sight)


def _read_excerpt(view: WorkspaceView, reference: Reference) -> Excerpt:
    place = view.resolve(reference.uri)
    file = view.read(place)
    if file is None:
        raise TurnRefused(f"The file {place.label} does not exist.")
    return build_excerpt(place.label, file.text, reference.lines, place.key)


async def read_changes(request: TurnRequest) -> str:
    """Return the uncommitted changes as text, or an empty string if the request does not include them.

    Raises TurnRefused if an action requires changes and there are none.
    """
    scope = request.changes if isinstance(request, ActionRequest) else ""
    if not scope:
        return ""
    view, staged, needed = request.view, scope == "staged", scope != "of the place"
    try:
        place = next((view.resolve(place.uri) for place in request.places if not staged), None)
        report = await find_changes(view, place, staged=staged)
    except (ToolFailed, PathRefused) as failed:
        if needed:
            raise TurnRefused(str(failed)) from None
        return ""
    if not report.files:
        if needed:
            raise TurnRefused(_NOTHING_STAGED if staged else "There are no changes since the last commit.")
        return ""
    heading = "The staged changes" if staged else "The changes since the last commit, including unsaved text"
    return escape_invisible(
        format_changes(heading, report.diff, [format_path(name) for name in report.files], report.omissions)
    )


def build_user_text(
    request: TurnRequest, excerpts: Sequence[Excerpt], changes_text: str, images: Sequence[ImageBlock] = ()
) -> str:
    """Build the prompt for the model. The result is empty if the user requests a compaction."""
    match request:
        case CompactRequest():
            return ""
        case ChatRequest():
            text = build_chat_prompt(request.prompt, excerpts, request.mode, request.diagnosed)
        case ActionRequest():
            text = _build_action_text(request, next(iter(excerpts), None), changes_text)
        case _:
            assert_never(request)
    if images:
        names = "\n".join(f"- {describe_image(image)}" for image in images)
        text = f"{text}\n\nImages above, in this order:\n{names}"
    if request.view.extra:
        folders = {folder.name: format_path(folder.root.path) for folder in request.view.extra}
        text = f"{text}\n\n{format_readable_folders(folders)}"
    # Some editors send lone surrogates, which providers reject.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _build_action_text(request: ActionRequest, place: Excerpt | None, changes_text: str) -> str:
    own_action, instruction = request.own_action, request.instruction
    if own_action is None:
        return build_action_prompt(
            request.name, place, diagnostics=request.problems, instruction=instruction, changes=changes_text
        )
    words = "\n\nInstruction: ".join(filter(None, (own_action.prompt, instruction)))
    return build_custom_prompt(words, request.mode, excerpt=place, changes=changes_text)


def read_images(request: TurnRequest) -> tuple[ImageBlock, ...]:
    """Return the images of a prompt: those that the client sent, then the files that the prompt refers to.

    Raises ImageRefused for an image that cannot be sent, TurnRefused for a missing file, and PathRefused for a file
    that tools may not read.
    """
    if not isinstance(request, ChatRequest):
        return ()
    images = list(request.images)
    check_totals(images)
    for place in request.references:
        if is_image(place):
            images.append(_read_image(request.view, place))
            check_totals(images)
    return tuple(images)


def check_images(images: Sequence[ImageBlock], model: ModelInfo, conversation: Conversation) -> None:
    """Raise ImageRefused if the model cannot read one of the images, or if the conversation has too many with them.

    A model that is not known yet, because only the server can name it, may read any image.
    """
    check_totals(images, list_images(conversation))
    if not model.id:
        return
    accepted = model.accepted_images
    refused = next((image for image in images if image.media_type not in accepted), None)
    if refused is None:
        return
    if accepted:
        kinds = format_type_names(accepted)
        raise ImageRefused(f"{refused.name} was not sent, because {model.id} takes only {kinds} images. Convert it.")
    place = f'[models.{model.provider}."{model.id}"]'
    how = f" If it does take images, set `images = true` under `{place}` in your config.toml."
    raise ImageRefused(
        f"{refused.name} was not sent, because {model.id} takes no images. Choose another model, or describe the image."
        f"{how if model.provider == 'openai-compatible' else ''}"
    )


def _read_image(view: WorkspaceView, reference: Reference) -> ImageBlock:
    place = view.resolve(reference.uri)
    view.check_readable(place)
    media_type = find_image_type(reference.uri)
    # An image is read from the disk, even if the editor has opened it as a text.
    root, path = place.root, place.path
    data = None if root is None or path is None else root.read(path, limit=MAX_IMAGE_BYTES)
    if data is None or media_type is None:
        raise TurnRefused(f"The file {place.label} does not exist.")
    return parse_image(format_path(place.label), data, media_type)


_MAX_NOTICES = 5


def find_file_references(prompt: str, view: WorkspaceView) -> tuple[tuple[Reference, ...], tuple[str, ...]]:
    """Return the files that a prompt mentions, and a notice for each mention that could not be resolved."""
    references: list[Reference] = []
    notices: list[str] = []
    prose = set(find_mentions("\n".join(line for _, line in filter_outside_fences(prompt.splitlines()))))
    for mention in find_mentions(prompt):
        if _is_file(view, mention.path):
            references.append(Reference(mention.path, mention.lines))
        elif mention.lines is not None and mention in prose and len(notices) < _MAX_NOTICES:
            # A mention without line numbers, or in code, may not refer to a file.
            notices.append(f"{escape_invisible(mention.text)} is neither a workspace file nor an open document.")
    return tuple(references), tuple(notices)


def format_mention(uri: str, view: WorkspaceView, lines: tuple[int, int] | None) -> str:
    """Format a mention of lines in a document as `@path:L1-L2`.

    If tools cannot read the document, use only its file name.
    """
    try:
        name = view.resolve(uri).label
    except PathRefused:
        name = uri_to_path(uri).rsplit("/", 1)[-1] if uri.startswith("file:") else uri
    return write_mention(name, lines)


def _is_file(view: WorkspaceView, path: str) -> bool:
    """Return True if the text after an `@` is a file path rather than an ordinary word."""
    try:
        return view.find_kind(view.resolve(path)) == "file"
    except PathRefused:
        return False
