"""What the world says about models: the ids of the vendors' SDKs, and two public price tables."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, get_args

from anthropic.types.model import Model as AnthropicModel
from genai_prices.data import providers as priced_providers
from google.genai._gaos.types.interactions.model import Model as GoogleModel
from openai.types.shared.chat_model import ChatModel
from openai.types.shared.responses_model import ResponsesModel

PROVIDERS = ("anthropic", "openai", "google")
# The modes of the models in LiteLLM's table that answer with text.
_TEXT_MODES = ("chat", "responses")
_LITELLM_NAMES = {"anthropic": "anthropic", "openai": "openai", "google": "gemini"}
_TABLE = "litellm/model_prices_and_context_window_backup.json"


@dataclass(frozen=True)
class Facts:
    """What a source says about a model. None: the source does not say it. Prices are for a million tokens.

    Some sources give the window without the output.
    """

    source: str
    provider: str
    model: str
    window: int | None = None
    output_cap: int | None = None
    input: float | None = None
    output: float | None = None
    cache_read: float | None = None


def list_sdk_ids() -> Iterator[Facts]:
    """Yield the ids that the installed SDKs name."""
    ids = {
        "anthropic": get_args(get_args(AnthropicModel)[0]),
        "openai": (*get_args(ChatModel), *get_args(get_args(ResponsesModel)[-1])),
        "google": get_args(get_args(GoogleModel)[0]),
    }
    for provider in PROVIDERS:
        yield from (Facts("SDK", provider, model) for model in sorted(set(ids[provider])))


def list_genai_prices(day: date) -> Iterator[Facts]:
    """Yield the rows of genai-prices. Its other names are those of gateways."""
    for provider in PROVIDERS:
        vendor = next(each for each in priced_providers if each.id == provider)
        for model in vendor.models:
            prices = model.get_prices(datetime.combine(day, time(2, tzinfo=UTC)))
            figures = [_find_base(getattr(prices, f"{name}_mtok", None)) for name in ("input", "output", "cache_read")]
            yield Facts("genai-prices", provider, model.id, model.context_window, None, *figures)


def _find_base(price: Any) -> float | None:
    return None if price is None else float(getattr(price, "base", price))


def list_litellm(table: Mapping[str, Any]) -> Iterator[Facts]:
    """Yield the rows of LiteLLM's table that are for models of the three services and for text."""
    for key, row in table.items():
        target = table.get(row.get("alias_of", ""), row)
        for provider, name in _LITELLM_NAMES.items():
            if target.get("litellm_provider") == name and target.get("mode") in _TEXT_MODES:
                costs = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
                figures = [None if target.get(cost) is None else target[cost] * 1e6 for cost in costs]
                model = key.removeprefix(f"{name}/")
                window, output_cap = target.get("max_input_tokens"), target.get("max_output_tokens")
                yield Facts("LiteLLM", provider, model, window, output_cap, *figures)


def read_litellm(wheel_or_table: Path) -> Mapping[str, Any]:
    """Read LiteLLM's table from a wheel of the package, or from the file itself."""
    if wheel_or_table.suffix == ".whl":
        with zipfile.ZipFile(wheel_or_table) as wheel:
            return dict(json.loads(wheel.read(_TABLE)))
    return dict(json.loads(wheel_or_table.read_text("utf-8")))


def download_litellm() -> Mapping[str, Any]:
    """Download LiteLLM's newest wheel, which holds the table, and read it. Nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder]
        subprocess.run([*command, "litellm"], check=True)
        [wheel] = Path(folder).glob("*.whl")
        return read_litellm(wheel)
