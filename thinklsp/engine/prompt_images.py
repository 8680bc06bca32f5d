"""The images of a prompt, which a model must be able to read."""

from __future__ import annotations

from collections.abc import Sequence

from thinklsp.core.errors import ImageRefused, TurnRefused
from thinklsp.core.images import (
    MAX_IMAGE_BYTES,
    check_totals,
    find_image_type,
    format_type_names,
    list_images,
    parse_image,
)
from thinklsp.core.messages import Conversation, ImageBlock
from thinklsp.core.text_safety import format_path
from thinklsp.engine.turn_request import ChatRequest, Reference, TurnRequest, is_image
from thinklsp.providers.model_info import ModelInfo
from thinklsp.workspace.view import WorkspaceView


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
