"""A turn's edit: the text of each file before and after the turn, and the hunks between the two versions.

Offsets are in code points, not UTF-16 units. `lsp/protocol/positions` converts the offsets for the client.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from thinklsp.core.lines import find_changed_blocks, split_lines, split_without_ends

_CONTEXT_LINES = 3
_NULL_PATH = "/dev/null"


@dataclass(frozen=True, slots=True)
class TextEdit:
    """The replacement of the text in `[start, end)` with `new_text`."""

    start: int
    end: int
    new_text: str


@dataclass(frozen=True, slots=True)
class FileEdit:
    """The net change that a turn makes to a file.

    `before` is the file's text at the start of the turn, or None if the file did not exist. `after` is None if the turn
    deletes the file. `new_uri` and `new_path` are set if the turn renames the file. `version` is the version of the
    open document with the text `before`, or None if the file was not open. `path` is the display path. `before` and
    `after` include a byte order mark only if the file was an open document, or if it is deleted. `key` is the URI of a
    file in a workspace folder without links, or an empty string if it is unknown.
    """

    uri: str
    path: str
    before: str | None
    after: str | None
    version: int | None = None
    new_uri: str | None = None
    new_path: str | None = None
    key: str = field(default="", compare=False)

    @property
    def is_creation(self) -> bool:
        return self.before is None

    @property
    def is_deletion(self) -> bool:
        return self.after is None

    @property
    def is_file_operation(self) -> bool:
        """True if the edit creates, deletes or renames the file."""
        return self.is_creation or self.is_deletion or self.new_uri is not None


@dataclass(frozen=True, slots=True)
class EditSet:
    files: tuple[FileEdit, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files)


def count_hunks(file: FileEdit) -> int:
    """Return the number of hunks in a file that the user can accept separately.

    Creating, deleting or renaming a file counts as one hunk.
    """
    if file.before is None or file.after is None:
        return 1
    count = len(find_changed_blocks(split_comparable_lines(file.before), split_comparable_lines(file.after)))
    if not count and file.before != file.after:
        count = 1
    return count + (file.new_uri is not None)


def split_comparable_lines(text: str) -> list[str]:
    """Return the lines without line endings and byte order mark, which are ignored when computing hunks."""
    return split_without_ends(text.removeprefix("\ufeff"))


def is_blank(text: str | None) -> bool:
    """Return whether a file is missing or contains only line endings."""
    return not (text or "").strip("\r\n")


def compute_hunks(before: str, after: str) -> tuple[TextEdit, ...]:
    """Return the smallest edits that turn `before` into `after`.

    The edits are sorted and disjoint, and never split ``\\r\\n``. Lines are compared first. Each edit then excludes the
    common prefix and suffix of its changed region.
    """
    old, new = split_lines(before), split_lines(after)
    edits = []
    i = at = 0
    for i1, i2, j1, j2 in find_changed_blocks(old, new):
        start = at + sum(map(len, old[i:i1]))
        i, at = i2, start + sum(map(len, old[i1:i2]))
        edits.append(_trim_edit(before, start, at, "".join(new[j1:j2])))
    return tuple(edits)


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """Return `text` with all `edits` applied at once.

    Insertions at the same offset keep their order. Overlapping edits raise ValueError.
    """
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if not at <= edit.start <= edit.end <= len(text):
            raise ValueError("the edits overlap or lie outside the text")
        pieces += (text[at : edit.start], edit.new_text)
        at = edit.end
    return "".join((*pieces, text[at:]))


def _trim_edit(before: str, start: int, end: int, new_text: str) -> TextEdit:
    old_text = before[start:end]
    shortest = min(len(old_text), len(new_text))
    head = 0
    while head < shortest and old_text[head] == new_text[head]:
        head += 1
    if head and old_text[head - 1] == "\r" and "\n" in (old_text[head : head + 1], new_text[head : head + 1]):
        head -= 1
    tail = 0
    while tail < shortest - head and old_text[-1 - tail] == new_text[-1 - tail]:
        tail += 1
    if (
        tail
        and old_text[-tail] == "\n"
        and "\r" in (_find_char_before(old_text, tail), _find_char_before(new_text, tail))
    ):
        tail -= 1
    return TextEdit(start + head, end - tail, new_text[head : len(new_text) - tail])


def _find_char_before(text: str, tail: int) -> str:
    return text[-tail - 1 : -tail]


def format_diff(edit_set: EditSet) -> str:
    """Return the edit set as a Git diff with three lines of context. The diff of an empty set is an empty string."""
    return "".join(_format_file(edit) for edit in edit_set.files)


def count_changed_lines(before: str, after: str) -> tuple[int, int]:
    """Return the numbers of added and removed lines in the diff between two versions."""
    changes = find_changed_blocks(_split_diff_lines(before), _split_diff_lines(after))
    return sum(j2 - j1 for _, _, j1, j2 in changes), sum(i2 - i1 for i1, i2, _, _ in changes)


def _format_file(edit: FileEdit) -> str:
    new_path = edit.new_path or edit.path
    old_name, new_name = _quote_name("a", edit.path), _quote_name("b", new_path)
    lines = [f"diff --git {old_name} {new_name}\n"]
    if edit.is_creation:
        lines.append("new file mode 100644\n")
    elif edit.is_deletion:
        lines.append("deleted file mode 100644\n")
    elif new_path != edit.path:
        lines += [f"rename from {_quote_name('', edit.path)}\n", f"rename to {_quote_name('', new_path)}\n"]
    body = _format_hunks(_split_diff_lines(edit.before or ""), _split_diff_lines(edit.after or ""))
    if body:
        # As in git, a tab ends a name with blanks, because `patch` would read a date from the blank on.
        old_end, new_end = ("\t\n" if " " in path else "\n" for path in (edit.path, new_path))
        lines.append(f"--- {_NULL_PATH}\n" if edit.is_creation else f"--- {old_name}{old_end}")
        lines.append(f"+++ {_NULL_PATH}\n" if edit.is_deletion else f"+++ {new_name}{new_end}")
    return "".join((*lines, *body))


def _quote_name(side: str, path: str) -> str:
    """Return a file name for a diff header.

    Names with quotes, control or invisible characters are quoted as in git, and names that end with a blank, which
    `patch` would drop.
    """
    whole = f"{side}/{path}" if side else path
    if whole.isprintable() and not set(whole) & {'"', "\\"} and not whole.endswith(" "):
        return whole
    return f'"{"".join(map(_escape_byte, whole.encode("utf-8", "surrogateescape")))}"'


def _escape_byte(byte: int) -> str:
    char = chr(byte)
    return f"\\{char}" if char in '"\\' else char if " " <= char <= "~" else f"\\{byte:03o}"


def _split_diff_lines(text: str) -> list[str]:
    """Split text only at ``\\n``, as diff parsers do. A lone ``\\r`` does not end a line."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _format_hunks(old: list[str], new: list[str]) -> list[str]:
    groups: list[list[tuple[int, int, int, int]]] = []
    for change in find_changed_blocks(old, new):
        if groups and change[0] - groups[-1][-1][1] <= 2 * _CONTEXT_LINES:
            groups[-1].append(change)
        else:
            groups.append([change])
    return [line for group in groups for line in _format_hunk(old, new, group)]


def _format_hunk(old: list[str], new: list[str], changes: list[tuple[int, int, int, int]]) -> list[str]:
    first, last = changes[0], changes[-1]
    lead = min(_CONTEXT_LINES, first[0])
    start, end = first[0] - lead, min(len(old), last[1] + _CONTEXT_LINES)
    new_start, new_end = first[2] - lead, last[3] + end - last[1]
    lines = [f"@@ -{_format_range(start, end)} +{_format_range(new_start, new_end)} @@\n"]
    at = start
    for i1, i2, j1, j2 in changes:
        lines += (_mark_line(" ", line) for line in old[at:i1])
        lines += (_mark_line("-", line) for line in old[i1:i2])
        lines += (_mark_line("+", line) for line in new[j1:j2])
        at = i2
    lines += (_mark_line(" ", line) for line in old[at:end])
    return lines


def _format_range(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1 if count else start},{count}"


def _mark_line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
