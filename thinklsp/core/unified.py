"""An edit set as a unified diff: for people, and for programs that read git's form. Nothing is parsed here."""

from __future__ import annotations

import json

from thinklsp.core.edits import EditSet, FileEdit
from thinklsp.core.lines import changed_blocks

_CONTEXT = 3
_NULL = "/dev/null"


def diff(edit_set: EditSet) -> str:
    """Every file with ``a/`` and ``b/`` headers and three lines of context; empty for an empty set."""
    return "".join(_file(edit) for edit in edit_set.files)


def counts(before: str, after: str) -> tuple[int, int]:
    """How many lines the diff of two texts adds and removes."""
    changes = changed_blocks(_lines(before), _lines(after))
    return sum(j2 - j1 for _, _, j1, j2 in changes), sum(i2 - i1 for i1, i2, _, _ in changes)


def _file(edit: FileEdit) -> str:
    new_path = edit.new_path or edit.path
    old_name, new_name = _name("a", edit.path), _name("b", new_path)
    lines = [f"diff --git {old_name} {new_name}\n"]
    if edit.creates:
        lines.append("new file mode 100644\n")
    elif edit.deletes:
        lines.append("deleted file mode 100644\n")
    elif new_path != edit.path:
        lines += [f"rename from {_name('', edit.path)}\n", f"rename to {_name('', new_path)}\n"]
    body = _hunks(_lines(edit.before or ""), _lines(edit.after or ""))
    if body:
        lines.append(f"--- {_NULL if edit.creates else old_name}\n")
        lines.append(f"+++ {_NULL if edit.deletes else new_name}\n")
    return "".join((*lines, *body))


def _name(side: str, path: str) -> str:
    """Names with quotes, control characters or line breaks are quoted, so that a header stays one line."""
    whole = f"{side}/{path}" if side else path
    return whole if whole.isprintable() and not set(whole) & {'"', "\\"} else json.dumps(whole)


def _lines(text: str) -> list[str]:
    """Cut at ``\\n`` only: that is what readers of diffs do; a lone ``\\r`` stays inside its line."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _hunks(old: list[str], new: list[str]) -> list[str]:
    groups: list[list[tuple[int, int, int, int]]] = []
    for change in changed_blocks(old, new):
        if groups and change[0] - groups[-1][-1][1] <= 2 * _CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    return [line for group in groups for line in _hunk(old, new, group)]


def _hunk(old: list[str], new: list[str], changes: list[tuple[int, int, int, int]]) -> list[str]:
    first, last = changes[0], changes[-1]
    lead = min(_CONTEXT, first[0])
    start, end = first[0] - lead, min(len(old), last[1] + _CONTEXT)
    new_start, new_end = first[2] - lead, last[3] + end - last[1]
    lines = [f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@\n"]
    at = start
    for i1, i2, j1, j2 in changes:
        lines += (_marked(" ", line) for line in old[at:i1])
        lines += (_marked("-", line) for line in old[i1:i2])
        lines += (_marked("+", line) for line in new[j1:j2])
        at = i2
    lines += (_marked(" ", line) for line in old[at:end])
    return lines


def _span(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1 if count else start},{count}"


def _marked(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
