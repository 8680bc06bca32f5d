"""What has been found out about a service by its refusals, as a value: it is found in one room and kept in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from thinklsp.core.messages import Conversation

RemedyKind = Literal["form", "effort", "never", "compaction", "cache", "counts", "told", "drop", "bare"]


@dataclass(frozen=True, slots=True)
class Remedy:
    """What one model at one service gets from now on in place of what was refused.

    `form`: the form of thinking `instead` in place of `refused`. `effort`: a lower level in place of `refused`, which
    is `FORM:LEVEL`, since a level may be refused in one form of thinking alone. `never`: no thinking back, ever.
    `compaction`: the service is not asked to shorten what it reads, which is then our business. `cache`: no hints for
    the prompt cache. `counts`: no token counts while the model thinks. The others are for conversations that begin with
    `beginning`: `drop` asks the service to leave out the thinking in it that does not fit, `bare` sends none of it, and
    `told` changes nothing: the user knows that the thinking in it is lost for the reason in `refused`.
    """

    model: str
    kind: RemedyKind
    refused: str = ""
    instead: str = ""
    beginning: Conversation = ()
