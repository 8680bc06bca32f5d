"""Workspace edits: merged files with versions, minimal hunks and change annotations.

Also documents that the server creates in a `.thinklsp/` folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from lsprotocol import types

from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit, compute_hunks
from thinklsp.core.errors import PathRefused
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine.merge_plan import MergedFile, Scope
from thinklsp.engine.review_policy import find_file_reason, find_lines_reason, find_operation_reason
from thinklsp.lsp.editor.client import ClientFeatures
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.protocol.positions import Encoding, PositionMap
from thinklsp.workspace.uri import RelPath, path_to_uri

# The maximum number of annotations. Further hunks share two annotations, one with and one without confirmation.
_MAX_ANNOTATIONS = 60
# The maximum number of lines between hunks that share an annotation.
_MAX_GAP_LINES = 3
_MAX_TITLE_LENGTH, _MAX_LABEL_LENGTH = 60, 120


@dataclass(slots=True)
class _HunkGroup:
    """Neighbouring hunks in a file that share an annotation.

    `first` and `last` are zero-based lines. `reason` explains why the hunks need a review, or is None if the user
    requested them.
    """

    first: int
    last: int
    reason: str | None
    count: int = 1


@dataclass(slots=True)
class _Annotations:
    """The change annotations for a workspace edit, by id.

    `verified` describes the result of the tests. It is empty if no tests ran.
    """

    title: str
    review: Review
    scope: Scope | None
    verified: str
    by_id: dict[str, types.ChangeAnnotation] = field(default_factory=dict)

    def add_operation(self, file: FileEdit) -> str:
        """Add an annotation for an operation on an entire file and return its id."""
        name = file.path.rpartition("/")[2]
        new_name = (file.new_path or file.new_uri or "").rpartition("/")[2]
        summary = (
            f"delete {name}" if file.is_deletion else f"{name} becomes {new_name}" if new_name else f"new file {name}"
        )
        return self._add(summary, find_operation_reason(file, self.scope))

    def add_hunks(self, file: FileEdit, ranges: Sequence[types.Range]) -> list[str]:
        """Add annotations for a file's hunks and return the id for each hunk."""
        file_reason = find_file_reason(file, self.scope)
        groups: list[_HunkGroup] = []
        for range_ in ranges:
            first, last = range_.start.line, range_.end.line
            reason = file_reason or find_lines_reason(self.scope, (first, last))
            last_line = last - 1 if last > first and range_.end.character == 0 else last
            group = groups[-1] if groups else None
            if group is not None and group.reason == reason and first - group.last <= _MAX_GAP_LINES:
                group.last, group.count = max(group.last, last_line), group.count + 1
            else:
                groups.append(_HunkGroup(first, last_line, reason))
        name = file.path.rpartition("/")[2]
        return [id_ for group in groups for id_ in [self._add(_format_place(name, group), group.reason)] * group.count]

    def _add(self, summary: str, reason: str | None) -> str:
        asks = reason is not None or self.review == "always"
        id_ = f"thinklsp-{len(self.by_id) + 1}"
        if len(self.by_id) >= _MAX_ANNOTATIONS:
            id_, summary = ("thinklsp-rest-asked" if asks else "thinklsp-rest"), "more changes"
        detail = reason or (
            "requested by you" if self.scope is None or self.scope.uri is None else "in the requested file or lines"
        )
        description = f"{detail}. {self.verified}" if self.verified else detail
        label = _truncate(f"thinklsp: {_truncate(self.title, _MAX_TITLE_LENGTH)} – {summary}", _MAX_LABEL_LENGTH)
        annotation = types.ChangeAnnotation(label, needs_confirmation=asks, description=description)
        self.by_id.setdefault(id_, annotation)
        return id_


def _format_place(name: str, group: _HunkGroup) -> str:
    first, last = group.first + 1, group.last + 1
    return f"{name} (line {first})" if last <= first else f"{name} (lines {first}–{last})"


def _truncate(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


# Both options are set. With `ignoreIfExists`, Neovim does not create the folder of a new file, and the file cannot be
# saved. Without any options, Emacs lsp-mode fails.
CREATE_OPTIONS = types.CreateFileOptions(overwrite=False, ignore_if_exists=False)

Change = types.TextDocumentEdit | types.CreateFile | types.RenameFile | types.DeleteFile


def build_workspace_edit(
    files: Sequence[MergedFile],
    features: ClientFeatures,
    *,
    encoding: Encoding,
    title: str,
    review: Review = "auto",
    scope: Scope | None = None,
    verified: str = "",
) -> types.WorkspaceEdit:
    """Build the workspace edit for all files, in order.

    `verified` describes the result of the turn's tests. It is empty if no tests ran.
    """
    if not features.document_changes:
        return types.WorkspaceEdit(changes={item.file.uri: _build_text_edits(item, encoding) for item in files})
    annotated = features.change_annotations and review != "never"
    annotations = _Annotations(title, review, scope, verified) if annotated else None
    ends_new_files = features.ends_new_files
    changes = [
        change
        for item in files
        for change in _build_changes(item, encoding, annotations, ends_new_files=ends_new_files)
    ]
    return types.WorkspaceEdit(document_changes=changes, change_annotations=(annotations and annotations.by_id) or None)


def _build_changes(
    item: MergedFile, encoding: Encoding, annotations: _Annotations | None, *, ends_new_files: bool
) -> Iterator[Change]:
    file, creates = item.file, item.current.text is None
    file_annotation_id: str | None = None
    if annotations is not None and (file.is_deletion or creates or file.new_uri is not None):
        file_annotation_id = annotations.add_operation(file)
    if file.is_deletion:
        if item.current.version is not None:
            # A deletion has no version. A client refuses this edit, and with it the deletion, if the text has changed.
            yield build_document_edit(file.uri, item.current.version, ())
        options = types.DeleteFileOptions(ignore_if_not_exists=True)
        yield types.DeleteFile(file.uri, options=options, annotation_id=file_annotation_id)
        return
    if creates:
        yield types.CreateFile(file.uri, options=CREATE_OPTIONS, annotation_id=file_annotation_id)
    text_edits = _build_text_edits(item, encoding)
    if ends_new_files and not item.current.text:
        text_edits = [types.TextEdit(edit.range, edit.new_text.removesuffix("\n")) for edit in text_edits]
    edits: list[types.TextEdit | types.AnnotatedTextEdit] = [*text_edits]
    if annotations is not None:
        ranges = [edit.range for edit in edits]
        ids = (
            [file_annotation_id] * len(edits) if file_annotation_id and creates else annotations.add_hunks(file, ranges)
        )
        edits = [
            types.AnnotatedTextEdit(annotation_id, edit.range, edit.new_text)
            for edit, annotation_id in zip(edits, ids, strict=True)
        ]
    if edits:
        yield build_document_edit(file.uri, item.current.version, edits)
    if file.new_uri is not None:
        yield types.RenameFile(file.uri, file.new_uri, annotation_id=file_annotation_id)


def build_document_edit(
    uri: str, version: int | None, edits: Sequence[types.TextEdit | types.AnnotatedTextEdit]
) -> types.TextDocumentEdit:
    """Build the edit for a document. `version` is None if the document is not open."""
    return types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(uri, version), edits)


def _build_text_edits(item: MergedFile, encoding: Encoding) -> list[types.TextEdit]:
    before, after = item.current.text or "", item.after or ""
    lines = PositionMap(before, encoding)
    return [
        types.TextEdit(lines.to_range(hunk.start, hunk.end), hunk.new_text) for hunk in compute_hunks(before, after)
    ]


_IMPOSSIBLE = "it requires an open folder and an editor that can create files."


class GeneratedDocuments:
    """A generator for documents in `folder`, a path relative to the first workspace folder.

    `label` is the name shown to the user. `problem` is the reason why the latest document could not be created.
    """

    def __init__(self, state: ConnectionState, snapshots: Snapshots, folder: str, label: str) -> None:
        self._state = state
        self._snapshots = snapshots
        self._folder = tuple(folder.split("/"))
        self._label = label
        self.problem = ""
        self._create_lock = asyncio.Lock()

    @property
    def is_possible(self) -> bool:
        can = self._state.client.features
        creates = can.apply_edit and "create" in can.file_operations
        return creates and bool(self._state.documents.folders)

    async def show(self, uri: str, *, take_focus: bool) -> None:
        """Show a document in the editor, or tell the user its path if the editor cannot show documents."""
        if await self._state.client.show_document(uri, take_focus=take_focus):
            return
        try:
            name = self._snapshots.create_view().resolve(uri).label
        except PathRefused:
            # The document or its folder has been closed since the document was created.
            name = uri.rpartition("/")[2]
        self._state.client.show_message(
            "info", f"The {self._label} is in {escape_invisible(name)}. Open that file to see it."
        )

    async def create(self, name: str, suffix: str, text: str) -> str | None:
        """Create a document and return its URI, or None with a `problem` if it could not be created."""
        # Create one document at a time, because two concurrent calls might choose the same name.
        async with self._create_lock:
            return await self._create_locked(name, suffix, text)

    async def _create_locked(self, name: str, suffix: str, text: str) -> str | None:
        self.problem = _IMPOSSIBLE
        uri = self._find_free_uri(name, suffix) if self.is_possible else None
        if uri is None:
            return None
        # Use two edits. Within one edit, Emacs lsp-mode writes the text before it creates the folder and the file.
        if not await self._apply(types.CreateFile(uri, options=CREATE_OPTIONS)):
            return None
        start = types.Position(0, 0)
        if await self._apply(build_document_edit(uri, None, [types.TextEdit(types.Range(start, start), text)])):
            return uri
        problem = self.problem
        if "delete" in self._state.client.features.resource_operations:
            await self._apply(types.DeleteFile(uri))
        self.problem = problem
        return None

    async def _apply(self, change: types.CreateFile | types.DeleteFile | types.TextDocumentEdit) -> bool:
        edit = types.WorkspaceEdit(document_changes=[change])
        reply = await self._state.client.apply_edit(f"thinklsp: {self._label}", edit)
        self.problem = "" if reply.applied else f"the editor refused it: {reply.reason or 'no reason given'}."
        return reply.applied

    def _find_free_uri(self, name: str, suffix: str) -> str | None:
        """Return the URI of a new document in the first folder, which git ignores."""
        folder = next(iter(self._snapshots.create_view().folders), None)
        if folder is None:
            return None
        root, parts = folder.root, self._folder

        def is_taken(file: str) -> bool:
            uri = path_to_uri("/".join((root.given_path, *parts, file)))
            path = RelPath.build((*parts, file), file)
            return self._state.documents.get(uri) is not None or root.stat(path) is not None

        names = chain([f"{name}{suffix}"], (f"{name}-{number}{suffix}" for number in count(2)))
        try:
            # The folder may contain hundreds of documents, so list it once instead of checking each name.
            listing = root.list(RelPath.build(parts))
            listed_names = frozenset() if listing is None else frozenset(listing.files)
            file = next(file for file in names if file not in listed_names and not is_taken(file))
            root.ignore_folder(parts)
        except PathRefused as error:
            self.problem = str(error)
            return None
        return path_to_uri("/".join((root.given_path, *parts, file)))
