"""The four families of providers side by side: the samples and the adapter of each, for tests that hold for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support import anthropic_samples, chat_samples, google_samples, openai_samples
from thinklsp.core.messages import AssistantMessage
from thinklsp.providers.base import Adapter
from thinklsp.providers.chat_adapter import OpenAiChatAdapter


@dataclass(frozen=True)
class Family:
    """`secrets`: opaque strings of the sample conversation."""

    samples: Any
    adapter: Adapter
    secrets: tuple[str, ...]


FAMILIES: Mapping[str, Family] = {
    "anthropic": Family(anthropic_samples, anthropic_samples.ADAPTER, ("Sig1", "Rd1")),
    "openai": Family(openai_samples, openai_samples.ADAPTER, ("gAAAsecret1",)),
    "google": Family(google_samples, google_samples.ADAPTER, ("Sig1", "Sig3")),
    "chat": Family(chat_samples, OpenAiChatAdapter(chat_samples.server()), ("Sig1", "Enc1")),
}


def list_cases(*, failing: bool) -> list[tuple[str, str]]:
    """Return the family and name of each recorded stream."""
    return [(name, case) for name, family in FAMILIES.items() for case in family.samples.cases(failing=failing)]


def read_case(name: str, case: str) -> Any:
    """Read a recorded stream. Raises what decoder and accumulator raise."""
    samples = FAMILIES[name].samples
    return samples.run(samples.stream(case), *([samples.server_of(case)] if name == "chat" else []))


def find_message(outcome: Any) -> AssistantMessage:
    """Return the message in what `run` of the samples returns."""
    message: AssistantMessage = outcome[0] if isinstance(outcome, tuple) else outcome.message
    return message
