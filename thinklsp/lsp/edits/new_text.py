"""An edit as text that the user inserts by hand, for files that the editor cannot change in any other way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from thinklsp.core.edits import FileEdit, split_comparable_lines
from thinklsp.core.lines import find_changed_blocks
from thinklsp.core.markdown import wrap_in_fence
from thinklsp.core.text_safety import escape_invisible

_INTRODUCTION = (
    "Your editor does not accept edits from a server, so change the files yourself. The line numbers are those before "
    "the changes."
)


def format_new_text(files: Sequence[FileEdit]) -> str:
    """Return the changes of files as Markdown, or an empty string if there are none."""
    parts = [part for file in files for part in _describe_changes(file)]
    return "\n\n".join((_INTRODUCTION, *parts)) if parts else ""


def _describe_changes(file: FileEdit) -> Iterator[str]:
    name = f"`{escape_invisible(file.path)}`"
    if file.after is None:
        yield f"Delete {name}."
        return
    if file.before is None:
        yield f"Create {name}:\n\n{wrap_in_fence(file.after)}"
    elif file.before != file.after:
        yield from _describe_lines(name, file.before, file.after)
    if file.new_uri is not None:
        yield f"Rename {name} to `{escape_invisible(file.new_path or file.new_uri)}`."


def _describe_lines(name: str, before: str, after: str) -> Iterator[str]:
    old, new = split_comparable_lines(before), split_comparable_lines(after)
    blocks = find_changed_blocks(old, new)
    if not blocks:
        yield f"Change the line endings of {name}."
    for i1, i2, j1, j2 in blocks:
        lines = f"line {i2}" if i2 - i1 < 2 else f"lines {i1 + 1}–{i2}"
        if j1 == j2:
            yield f"In {name}, delete {lines}."
            continue
        place = f"replace {lines}" if i1 < i2 else f"insert after {lines}" if i1 else "insert before line 1"
        new_lines = wrap_in_fence("\n".join(new[j1:j2]))
        yield f"In {name}, {place}:\n\n{new_lines}"
