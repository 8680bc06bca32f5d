"""The engine, which runs turns and streams their events.

Editors (`lsp/`) and the terminal (`thinklsp ask`) share the engine. Importing this package loads heavy libraries, so
front ends import it only when the first turn starts.
"""

from thinklsp.engine.engine import Engine
from thinklsp.engine.turn import FrontEnd, Turn
from thinklsp.engine.turn_config import Choices
from thinklsp.engine.turn_request import ActionRequest, ChatRequest, CompactRequest, Reference, TurnRequest

__all__ = [
    "ActionRequest",
    "ChatRequest",
    "Choices",
    "CompactRequest",
    "Engine",
    "FrontEnd",
    "Reference",
    "Turn",
    "TurnRequest",
]
