"""Which action a command means, the user's own ones included, and what it is asked to do."""

from __future__ import annotations

from collections.abc import Sequence

from thinklsp.agent.prompts import ACTIONS
from thinklsp.lsp.protocol.errors import InvalidParams
from thinklsp.settings.own_actions import ActionSection


def own_action(name: str, own: Sequence[ActionSection]) -> ActionSection:
    """Return the user's action of this name. Raises InvalidParams if there is none."""
    found = next((action for action in own if action.name == name), None)
    if found is None:
        known = ", ".join((*ACTIONS, *(action.name for action in own)))
        raise InvalidParams(f"The field name must be one of {known}; {name[:40]!r} is none of them.")
    return found
