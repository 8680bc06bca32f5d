"""Change annotations by group: neighbouring hunks share one, so that a preview of the editor is a review by hunk.

The label says where, the description why a group is there and what came of the tests; whether the editor asks about it
is what `edits.review` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit
from thinklsp.core.lines import split_lines
from thinklsp.lsp.documents.places import enclosing_definition
from thinklsp.lsp.edits.drafts import Scope
from thinklsp.lsp.edits.looks import why_file, why_lines, why_operation

# Beyond these, hunks share one annotation for those that are asked about and one for the others.
_MOST_GROUPS = 60
# Lines between hunks that belong together, and within one definition.
_NEAR, _NEAR_WITHIN = 3, 40
_LONGEST_TITLE, _LONGEST_LABEL = 60, 120
_REST = "more changes"


@dataclass(slots=True)
class _Group:
    """Hunks of one file that share an annotation. `first` and `last`: the lines, from 0, that they touch. `why`: None
    for what was asked for."""

    first: int
    last: int
    within: str | None
    why: str | None


@dataclass(slots=True)
class Annotations:
    """Those of one workspace edit. `verified`: a sentence on the tests, empty where none ran."""

    title: str
    review: Review
    scope: Scope | None
    verified: str = ""
    _made: dict[str, dict[str, Any]] = field(default_factory=dict)

    def all(self) -> Mapping[str, Mapping[str, Any]]:
        return self._made

    def whole(self, file: FileEdit) -> dict[str, str]:
        """What an operation on the whole file carries."""
        name = file.path.rpartition("/")[2]
        new_name = (file.new_path or file.new_uri or "").rpartition("/")[2]
        what = f"delete {name}" if file.deletes else f"{name} becomes {new_name}" if new_name else f"new file {name}"
        return self._mark(what, why_operation(file, self.scope))

    def hunks(self, file: FileEdit, text: str, ranges: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
        """What each hunk of a file carries, in their order. `ranges` are those of `text` that they replace."""
        lines = split_lines(text)
        why = why_file(file, self.scope)
        groups: list[_Group] = []
        owners: list[int] = []
        for range_ in ranges:
            found = self._group(file, lines, range_, why)
            if not groups or not _belongs(groups[-1], found):
                groups.append(found)
            groups[-1].last = max(groups[-1].last, found.last)
            owners.append(len(groups) - 1)
        marks = [self._mark(_where(file, group), group.why) for group in groups]
        return [marks[owner] for owner in owners]

    def _group(self, file: FileEdit, lines: Sequence[str], range_: Mapping[str, Any], why: str | None) -> _Group:
        first, last = range_["start"]["line"], range_["end"]["line"]
        why = why or why_lines(self.scope, (first, last))
        touched = last - 1 if last > first and range_["end"]["character"] == 0 else last
        return _Group(first, touched, enclosing_definition(lines, first, file.path), why)

    def _mark(self, what: str, why: str | None) -> dict[str, str]:
        asks = why is not None or self.review == "always"
        name = f"thinklsp-{len(self._made) + 1}"
        if len(self._made) >= _MOST_GROUPS:
            name, what = ("thinklsp-rest-asked" if asks else "thinklsp-rest"), _REST
        self._made.setdefault(name, self._annotation(what, why, asks=asks))
        return {"annotationId": name}

    def _annotation(self, what: str, why: str | None, *, asks: bool) -> dict[str, Any]:
        told = why or (
            "what you asked for" if self.scope is None or self.scope.uri is None else "where you asked for it"
        )
        description = f"{told}. {self.verified}" if self.verified else told
        label = _cut(f"thinklsp: {_cut(self.title, _LONGEST_TITLE)} – {what}", _LONGEST_LABEL)
        return {"label": label, "description": description, "needsConfirmation": asks}


def _belongs(group: _Group, found: _Group) -> bool:
    gap = found.first - group.last
    near = gap <= _NEAR or (found.within is not None and found.within == group.within and gap <= _NEAR_WITHIN)
    return near and found.why == group.why


def _where(file: FileEdit, group: _Group) -> str:
    first, last = group.first + 1, group.last + 1
    lines = f"line {first}" if last <= first else f"lines {first}–{last}"
    name = file.path.rpartition("/")[2]
    return f"{name}: {group.within} ({lines})" if group.within else f"{name} ({lines})"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
