"""What a task brings along of the changes since the last commit, in words for the model."""

from __future__ import annotations

from typing import Literal

from thinklsp.agent.prompts import changes_told
from thinklsp.core.errors import PathRefused, ToolFailed, TurnRefused
from thinklsp.tools.git import changes
from thinklsp.tools.shown import shown_name, visible
from thinklsp.workspace.view import WorkspaceView

Wanted = Literal["", "of the place", "all", "staged"]
"""`of the place`: those of its file, if git has any and can tell. `all`: of the working tree or a folder of it;
`staged`: what the next commit would hold. Of these two there must be some."""

_NOTHING_STAGED = "Nothing is staged: choose what to commit with git add first."


async def changes_of(view: WorkspaceView, uri: str | None, wanted: Wanted) -> str:
    """Empty where there are none. Raises TurnRefused with a sentence where there must be some."""
    if not wanted:
        return ""
    staged, needed = wanted == "staged", wanted != "of the place"
    try:
        place = None if uri is None or staged else view.resolve(uri)
        found = await changes(view, place, staged=staged)
    except (ToolFailed, PathRefused) as failed:
        if needed:
            raise TurnRefused(str(failed)) from None
        return ""
    if not found.files:
        if needed:
            raise TurnRefused(_NOTHING_STAGED if staged else "There are no changes since the last commit.")
        return ""
    what = "The staged changes" if staged else "The changes since the last commit, unsaved text included"
    return visible(changes_told(what, found.diff, [shown_name(name) for name in found.files], found.left_out))
