"""What the server announces of itself, as plain values: needed before anything that knows the protocol is loaded."""

from __future__ import annotations

# Commands that run turns report progress, from before the engine is loaded.
TURNS = ("thinklsp.chat", "thinklsp.action", "thinklsp.send", "thinklsp.compact")
COMMANDS = (
    *TURNS,
    "thinklsp.cancel",
    "thinklsp.apply",
    "thinklsp.undo",
    "thinklsp.effort",
    "thinklsp.thinking",
    "thinklsp.model",
    "thinklsp.sessions",
    "thinklsp.usage",
    "thinklsp.doctor",
)
QUICKFIX = "quickfix"
REWRITE = "refactor.rewrite"
COMPLETION_TRIGGERS = ("/", "@")
