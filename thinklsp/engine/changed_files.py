"""The files that have changed since the model last saw them. Each prompt begins with their names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thinklsp.core.errors import PathRefused
from thinklsp.core.messages import FileSight, Sight, TextBlock, compute_digest
from thinklsp.core.text_safety import escape_invisible, format_path
from thinklsp.tools.tool import Editor
from thinklsp.workspace.view import WorkspaceView

_MAX_NAMES = 50


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file whose text differs from the one that the model knows. `digest` is None for a missing file."""

    label: str
    known: FileSight
    digest: str | None


async def describe_changed_files(sight: Sight, view: WorkspaceView, editor: Editor) -> TextBlock | None:
    """Return a note for the model about the changed files, or None if it knows all files as they are.

    The note covers every change: by the user, another turn or another program, and edits that were never applied.
    """
    # Some editors announce no open documents. The model may know more files, but each is a request to the editor.
    await editor.load_documents(view, [file.key for file in sight.files[-_MAX_NAMES:]])
    changed = await asyncio.to_thread(_find_changed, sight.files, view)
    if not changed:
        return None
    lines = [
        *_format_names("Not as you wrote them", (file for file in changed if file.known.is_own)),
        *_format_names("Changed since you last saw them", (file for file in changed if not file.known.is_own)),
    ]
    text = "\n".join(("Files are not as you know them. Read them again before you rely on their contents.", *lines))
    return TextBlock(f"<note>{text}</note>", sight=tuple(FileSight(file.known.key, file.digest) for file in changed))


def _find_changed(files: Sequence[FileSight], view: WorkspaceView) -> list[ChangedFile]:
    changed = []
    for known in files:
        try:
            place = view.resolve(known.key)
            file = view.peek(place)
        except PathRefused:
            continue  # The document was closed, or tools may no longer read the file.
        digest = compute_digest(None if file is None else file.text)
        if digest != known.digest:
            changed.append(ChangedFile(place.label, known, digest))
    return changed


def _format_names(heading: str, files: Iterable[ChangedFile]) -> list[str]:
    names = [
        escape_invisible(format_path(file.label)) + (" (does not exist)" if file.digest is None else "")
        for file in files
    ]
    more = [f"and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
    return [f"{heading}: {', '.join((*names[:_MAX_NAMES], *more))}"] if names else []
