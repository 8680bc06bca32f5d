"""The content of a prompt: text, links to files, and texts and images that the client sends along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from thinklsp.acp.params import ImageContent, LinkContent, ResourceContent, TextContent, parse_content
from thinklsp.agent.prompts import Excerpt
from thinklsp.core.errors import PathRefused
from thinklsp.core.images import decode_image
from thinklsp.core.messages import ImageBlock, compute_digest
from thinklsp.core.prompt_syntax import write_mention
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine.turn_request import build_excerpt
from thinklsp.workspace.uri import uri_to_path
from thinklsp.workspace.view import Place, WorkspaceView

_MAX_NAME_LENGTH = 300


@dataclass(frozen=True, slots=True)
class PromptContent:
    """A prompt in the user's words, in which `@` mentions name the linked files.

    `attachments` are embedded texts. The text names each of the `images` at its place.
    """

    text: str
    attachments: tuple[Excerpt, ...]
    images: tuple[ImageBlock, ...] = ()


def read_prompt(blocks: Sequence[object], view: WorkspaceView) -> PromptContent:
    """Read the blocks of a prompt. A link that is not a file of the workspace only adds its address to the text.

    Raises InvalidParams for a block that the agent cannot use, ImageRefused for an image that cannot be sent, and
    PathRefused for the text of a protected file.
    """
    pieces: list[str] = []
    attachments: list[Excerpt] = []
    images: list[ImageBlock] = []
    for number, raw in enumerate(blocks):
        match parse_content(number, raw):
            case TextContent(text=words):
                _append_text(pieces, words)
            case LinkContent(uri=uri):
                _append_word(pieces, _format_link(uri, view))
            case ImageContent(data=data, mime_type=media_type):
                name = f"Image {len(images) + 1}"
                _append_word(pieces, f"[{name}]")
                images.append(decode_image(name, data, escape_invisible(media_type)))
            case ResourceContent(resource=resource):
                _check_readable(resource.uri, view)
                name = _format_name(resource.uri, view)
                _append_word(pieces, name)
                attachments.append(build_excerpt(name, resource.text, key=_find_key(resource.uri, resource.text, view)))
            case _ as unreachable:
                assert_never(unreachable)
    # Some clients send lone surrogates, which neither the store nor a provider accepts.
    plain = "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return PromptContent(plain, tuple(attachments), tuple(images))


def _check_readable(uri: str, view: WorkspaceView) -> None:
    """Raise PathRefused for a file that may contain secrets, also outside the workspace."""
    if not uri.startswith("file:"):
        return
    view.check_readable(_find_place(uri, view) or Place(uri, uri.rpartition("/")[2], uri))


def _find_place(uri: str, view: WorkspaceView) -> Place | None:
    try:
        return view.resolve(uri)
    except PathRefused:
        return None


def _find_key(uri: str, text: str, view: WorkspaceView) -> str | None:
    """Return the key of the file that has exactly this text, because a client may send only a part of the file."""
    place = _find_place(uri, view)
    try:
        file = None if place is None else view.peek(place)
    except PathRefused:
        return None
    return None if place is None or file is None or compute_digest(file.text) != compute_digest(text) else place.key


def _format_link(uri: str, view: WorkspaceView) -> str:
    """Return a mention of a file in the workspace, or the address of anything else."""
    place = _find_place(uri, view)
    if place is None:
        return _format_name(uri, view)
    return write_mention(place.label) if view.find_kind(place) == "file" else place.label


def _format_name(uri: str, view: WorkspaceView) -> str:
    if (place := _find_place(uri, view)) is not None:
        return place.label
    try:
        return escape_invisible(uri_to_path(uri)[:_MAX_NAME_LENGTH])
    except PathRefused:
        return escape_invisible(uri[:_MAX_NAME_LENGTH])


def _append_text(pieces: list[str], words: str) -> None:
    """Append a block of text. It is a new paragraph, unless the texts have a space where they meet.

    codecompanion.nvim sends a block for each file that the user shares, and again a prompt that was cancelled.
    """
    last = next((piece for piece in reversed(pieces) if piece), " ")
    is_apart = not words or last[-1].isspace() or words[0].isspace()
    pieces.append(words if is_apart else f"\n\n{words}")


def _append_word(pieces: list[str], word: str) -> None:
    """Append a word to a text, and a space after it, because the next block may begin with a letter."""
    last = next((piece for piece in reversed(pieces) if piece), " ")
    pieces.append(f"{word} " if last[-1].isspace() else f" {word} ")
