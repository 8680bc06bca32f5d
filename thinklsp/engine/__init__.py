"""The room where it all meets: settings, session, model, tools and store become one stream of events.

Editors (`lsp/`) and the terminal (`thinklsp ask`) share it. Importing it loads the heavy libraries, so the faces reach
for it only when the first turn needs it.
"""

from thinklsp.engine.engine import Engine
from thinklsp.engine.turn import Choices, Turn
from thinklsp.engine.turn_spec import ActionTask, ChatTask, CompactTask, Reference, TurnSpec

__all__ = ["ActionTask", "ChatTask", "Choices", "CompactTask", "Engine", "Reference", "Turn", "TurnSpec"]
