"""The models of the Gemini service as the simulator imitates them: one row each, and the models endpoint.

It is kept apart from the program's own catalogue on purpose: a client is tested against an independent account.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_LOW_UP = ("LOW", "MEDIUM", "HIGH")
_ALL = ("MINIMAL", *_LOW_UP)
_METHODS = ("generateContent", "countTokens", "createCachedContent", "batchGenerateContent")


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What one model accepts and how it behaves.

    `levels`: thinking levels, none where budgets rule. `budget`: the range of thinking budgets besides -1, None where
    it takes none. `off`: whether budget 0 is taken. `thinks`: whether it thinks unasked; None: it never does.
    """

    id: str
    generation: int
    levels: tuple[str, ...] = ()
    budget: tuple[int, int] | None = None
    off: bool = False
    thinks: bool | None = True
    functions: bool = True
    cache_minimum: int = 4096
    window: int = 1_048_576
    max_tokens: int = 65_536

    @property
    def demands_signatures(self) -> bool:
        """From generation 3 on calls carry ids and signatures, and the signatures are demanded back."""
        return self.generation >= 3


def _third(name: str, levels: tuple[str, ...]) -> ModelTraits:
    """Generation 3 takes budgets still; 0 stands for the lowest level where that is MINIMAL."""
    return ModelTraits(name, 3, levels, budget=(1, 65_536), off="MINIMAL" in levels)


_ROWS = (
    ModelTraits("gemini-4-hydrogen", 4, (*_LOW_UP, "XHIGH")),
    ModelTraits("gemini-4-argon", 4, _LOW_UP),
    ModelTraits("gemini-4-carbon", 4, _LOW_UP),
    _third("gemini-3.8-flash", _LOW_UP),
    _third("gemini-3.7-flash", _LOW_UP),
    _third("gemini-3.6-flash", _ALL),
    _third("gemini-3.5-flash", _ALL),
    _third("gemini-3.5-flash-lite", _ALL),
    _third("gemini-3.1-pro-preview", _LOW_UP),
    _third("gemini-3.1-flash-lite", _ALL),
    _third("gemini-3-pro-preview", ("LOW", "HIGH")),
    _third("gemini-3-flash-preview", _ALL),
    ModelTraits("gemini-2.5-pro", 2, budget=(128, 32_768)),
    ModelTraits("gemini-2.5-flash", 2, budget=(1, 24_576), off=True, cache_minimum=1024),
    ModelTraits("gemini-2.5-flash-lite", 2, budget=(512, 24_576), off=True, thinks=False, cache_minimum=1024),
    ModelTraits("gemini-2.5-flash-image", 2, thinks=None, functions=False, window=32_768, max_tokens=32_768),
)
MODELS = {row.id: row for row in _ROWS}


def model_info(name: str, *, window: int | None = None) -> dict[str, Any]:
    """The models endpoint's account of one id. `window` replaces the model's own context window."""
    traits = MODELS[name]
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name.replace("-", " ").title(),
        "description": "A scripted stand-in.",
        "inputTokenLimit": window or traits.window,
        "outputTokenLimit": traits.max_tokens,
        "supportedGenerationMethods": list(_METHODS),
        "temperature": 1,
        "topP": 0.95,
        "topK": 64,
        "maxTemperature": 2,
        **({} if traits.thinks is None else {"thinking": True}),
    }
