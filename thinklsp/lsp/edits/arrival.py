"""Whether an edit can be seen where it was sent to: in the open document, or in the file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.drafts import Proposal
from thinklsp.workspace.forms import merge_onto
from thinklsp.workspace.merge import Merged

_LONGEST_ARRIVAL = 1.5


class Arrival:
    def __init__(self, state: State, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots

    def is_there(self, item: Proposal) -> bool:
        """Now. A file that is not open must hold exactly what was sent; an open document may have been typed in."""
        view = self._snapshots.view()
        now = self._snapshots.present(item.file.new_uri or item.file.uri, view)
        if item.file.new_uri is not None:
            return now.text == item.after and self._snapshots.present(item.file.uri, view).text is None
        if now.refusal is not None or item.after is None or now.text is None:
            return now.refusal is None and now.text == item.after
        if now.version is None or item.present.text is None:
            return now.text == item.after
        return not self._lacks(item)

    async def missing(self, ready: Sequence[Proposal]) -> tuple[Proposal, ...]:
        """Open documents that do not hold their change a moment after the editor said so. Some editors drop an edit
        that meets typing and still report it as applied."""
        waiting = tuple(item for item in ready if self._lacks(item))
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_ARRIVAL):
                while waiting:
                    self._state.documents.touched.clear()
                    await self._state.documents.touched.wait()
                    waiting = tuple(item for item in waiting if self._lacks(item))
        return waiting

    def _lacks(self, item: Proposal) -> bool:
        document = self._state.documents.get(item.file.uri)
        if document is None or item.present.text is None or item.after is None:
            return False
        if document.text == item.after:
            return False
        merged = merge_onto(document.text, item.present.text, item.after)
        return isinstance(merged, Merged) and merged.text != document.text
