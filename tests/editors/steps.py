"""What is asked of every editor, by name: the rows of the table."""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """Where a client cannot do a step, the trial asserts the documented fallback and says which (`Trial.check`)."""

    ATTACH = "attaches beside the language's own server"
    ACTION = "offers fix on a diagnostic, and runs it"
    THINKING = "shows the thinking in its status line"
    EDIT = "the edit arrives in the buffer"
    UNDO = "one undo takes it back"
    CANCEL = "cancels from where it shows the progress"
    EFFORT = "an effort of its configuration reaches the wire"
    KNOWS = "what another server says reaches the model"
    CHAT = "chat document, there and back"
    RESUME = "goes on with a session after a restart"
