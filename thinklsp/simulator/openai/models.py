"""The models of the OpenAI service as the simulator imitates them: one row each, and the models endpoint.

It is kept apart from the program's own catalogue on purpose: a client is tested against an independent account.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from thinklsp.simulator.openai.errors import Refused

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_TO_HIGH = ("low", "medium", "high")
_FROM_NONE = ("none", *_TO_HIGH)
_ALWAYS_ON = ("low", "medium", "high", "xhigh", "max")
_SWITCHED = ("none", *_ALWAYS_ON)
_PRO = ("medium", "high", "xhigh")
_CODEX = ("low", "medium", "high", "xhigh")
_LONG, _BROAD, _OLD = 1_050_000, 400_000, 200_000
# Named only as a family so far: any member of it is played.
_NEWEST = re.compile(r"gpt-6\.2-[a-z]+(-law)?")
_DATED = {
    "gpt-5": "2025-08-07", "gpt-5-mini": "2025-08-07", "gpt-5-nano": "2025-08-07", "gpt-5-pro": "2025-10-06",
    "gpt-5.1": "2025-11-13", "gpt-5.2": "2025-12-11", "gpt-5.2-pro": "2025-12-11", "gpt-5.4-mini": "2026-03-17",
    "gpt-5.4-nano": "2026-03-17", "gpt-5.5": "2026-04-23", "gpt-5.5-pro": "2026-04-23", "gpt-4.1": "2025-04-14",
    "o1": "2024-12-17", "o3": "2025-04-16", "o3-pro": "2025-06-10", "o4-mini": "2025-04-16",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What one model accepts. `efforts` is empty for models that do not reason; `default`: the effort of a request
    that names none. `version` orders the generations; what came with one is asked of the properties below."""

    id: str
    version: tuple[int, int]
    efforts: tuple[str, ...] = ()
    default: str = "medium"
    window: int = _BROAD

    @property
    def reasons(self) -> bool:
        return bool(self.efforts)

    @property
    def summaries(self) -> tuple[str, ...]:
        return ("auto", "concise", "detailed") if self.version > (5, 0) else ("auto", "detailed")

    @property
    def contexts(self) -> tuple[str, ...]:
        return ("auto", "current_turn", "all_turns") if self.version >= (5, 4) else ("auto", "current_turn")

    @property
    def keeps_reasoning(self) -> bool:
        """Whether reasoning of earlier turns stays in context unless asked otherwise."""
        return self.version >= (5, 6)

    @property
    def modes(self) -> tuple[str, ...]:
        return ("standard", "pro") if self.version >= (5, 6) else ("standard",)

    @property
    def phases(self) -> bool:
        """Whether messages tell commentary from the final answer."""
        return self.version >= (5, 4)

    @property
    def bound(self) -> bool:
        """Whether reasoning holds only behind the prefix that it was made for; else it is dropped and reported."""
        return self.version >= (6, 2)

    @property
    def compacts(self) -> bool:
        """Whether long conversations are compacted on request."""
        return self.version >= (5, 2)

    @property
    def reports_writes(self) -> bool:
        return self.version >= (5, 6)


_ROWS = (
    ModelTraits("gpt-6-astra", (6, 0), _ALWAYS_ON, window=_LONG),
    ModelTraits("gpt-6.1-sol", (6, 1), _ALWAYS_ON, window=_LONG),
    ModelTraits("gpt-6.1-terra", (6, 1), _SWITCHED, window=_LONG),
    ModelTraits("gpt-6-sol", (6, 0), _SWITCHED, window=_LONG),
    ModelTraits("gpt-6-luna", (6, 0), _SWITCHED, window=_LONG),
    ModelTraits("gpt-5.6-sol", (5, 6), _SWITCHED, window=_LONG),
    ModelTraits("gpt-5.6-terra", (5, 6), _SWITCHED, window=_LONG),
    ModelTraits("gpt-5.6-luna", (5, 6), _SWITCHED, window=_LONG),
    ModelTraits("gpt-5.5", (5, 5), (*_FROM_NONE, "xhigh"), window=_LONG),
    ModelTraits("gpt-5.5-pro", (5, 5), _PRO, window=_LONG),
    ModelTraits("gpt-5.4", (5, 4), (*_FROM_NONE, "xhigh"), "none", _LONG),
    ModelTraits("gpt-5.4-mini", (5, 4), (*_FROM_NONE, "xhigh"), "none"),
    ModelTraits("gpt-5.4-nano", (5, 4), (*_FROM_NONE, "xhigh"), "none"),
    ModelTraits("gpt-5.4-pro", (5, 4), _PRO, window=_LONG),
    ModelTraits("gpt-5.3-codex", (5, 3), _CODEX),
    ModelTraits("gpt-5.3-chat-latest", (5, 3), ("medium",)),
    ModelTraits("gpt-5.2", (5, 2), (*_FROM_NONE, "xhigh"), "none"),
    ModelTraits("gpt-5.2-codex", (5, 2), _CODEX),
    ModelTraits("gpt-5.2-chat-latest", (5, 2), ("medium",)),
    ModelTraits("gpt-5.2-pro", (5, 2), _PRO),
    ModelTraits("gpt-5.1", (5, 1), _FROM_NONE, "none"),
    ModelTraits("gpt-5.1-codex-max", (5, 1), _CODEX),
    ModelTraits("gpt-5.1-codex", (5, 1), _TO_HIGH),
    ModelTraits("gpt-5.1-codex-mini", (5, 1), _TO_HIGH),
    ModelTraits("gpt-5.1-chat-latest", (5, 1), ("medium",)),
    ModelTraits("gpt-5-pro", (5, 0), ("high",), "high"),
    ModelTraits("gpt-5", (5, 0), ("minimal", *_TO_HIGH)),
    ModelTraits("gpt-5-codex", (5, 0), _TO_HIGH),
    ModelTraits("gpt-5-mini", (5, 0), ("minimal", *_TO_HIGH)),
    ModelTraits("gpt-5-nano", (5, 0), ("minimal", *_TO_HIGH)),
    ModelTraits("o4-mini", (4, 9), _TO_HIGH, window=_OLD),
    ModelTraits("o3", (4, 9), _TO_HIGH, window=_OLD),
    ModelTraits("o3-pro", (4, 9), _TO_HIGH, window=_OLD),
    ModelTraits("o3-mini", (4, 9), _TO_HIGH, window=_OLD),
    ModelTraits("o1", (4, 9), _TO_HIGH, window=_OLD),
    ModelTraits("gpt-4.1", (4, 1), window=_LONG),
    ModelTraits("gpt-4.1-mini", (4, 1), window=_LONG),
    ModelTraits("gpt-4.1-nano", (4, 1), window=_LONG),
    ModelTraits("gpt-4o", (4, 0), window=128_000),
    ModelTraits("gpt-4o-mini", (4, 0), window=128_000),
)
_BY_NAME = {row.id: row for row in _ROWS}
MODELS = _BY_NAME | {f"{name}-{date}": _BY_NAME[name] for name, date in _DATED.items()}


def traits_of(name: str) -> ModelTraits:
    """Raises Refused for a model that does not exist."""
    found = _find(name)
    if found is None:
        raise Refused(
            404,
            f"The model `{name}` does not exist or you do not have access to it.",
            param="model",
            code="model_not_found",
        )
    return found


def model_info(name: str) -> dict[str, Any]:
    """The models endpoint's account of one id, which tells nothing about what the model can do."""
    if _find(name) is None:
        raise Refused(404, f"The model '{name}' does not exist", param="model", code="model_not_found")
    return {"id": name, "object": "model", "created": 0, "owned_by": "openai"}


def _find(name: str) -> ModelTraits | None:
    if _NEWEST.fullmatch(name):
        return ModelTraits(name, (6, 2), _ALWAYS_ON, window=_LONG)
    return MODELS.get(name)
