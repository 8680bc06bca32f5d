"""The recordings below a folder: cassettes of vcrpy in YAML, as pydantic-ai and others keep them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

# The end of an address, and the family of its service.
_FAMILIES = {
    r"/v1/messages$": "anthropic",
    r"/responses$": "openai",
    r":(stream)?[gG]enerateContent$": "google",
    r"/chat/completions$": "chat",
}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Recording:
    """A good answer of a service. `is_stream`: it came as server-sent events, otherwise as one piece of JSON."""

    name: str
    family: str
    address: str
    model: str
    is_stream: bool
    body: bytes


def read_recordings(folder: Path) -> Iterator[Recording]:
    """Yield the good answers of all recordings, in the order of their files."""
    for path in sorted(folder.rglob("*.yaml")):
        if "cassettes" in path.parts:
            cassette = yaml.load(path.read_bytes(), _LOADER)
            interactions = cassette.get("interactions") if isinstance(cassette, dict) else None
            for number, interaction in enumerate(interactions if isinstance(interactions, list) else ()):
                yield from _read_interaction(f"{path.parent.name}/{path.stem}/{number}", interaction)


def _read_interaction(name: str, interaction: Any) -> Iterator[Recording]:
    request, response = (interaction.get(key) or {} for key in ("request", "response"))
    address = str(request.get("uri", ""))
    family = next((family for end, family in _FAMILIES.items() if re.search(end, address.partition("?")[0])), None)
    if family is None or response.get("status", {}).get("code") != 200:
        return
    headers = {key.lower(): str(value) for key, value in (response.get("headers") or {}).items()}
    text = (response.get("body") or {}).get("string")
    body = json.dumps(response.get("parsed_body")) if text is None else text
    if isinstance(body, str):
        model = _find_model(request.get("parsed_body"), address)
        is_stream = "event-stream" in headers.get("content-type", "")
        yield Recording(name, family, address, model, is_stream, body.encode())


def _find_model(body: object, address: str) -> str:
    named = body.get("model") if isinstance(body, Mapping) else None
    match = re.search(r"/models/([^:/]+):", address)
    return str(named or (match[1] if match else "m"))
