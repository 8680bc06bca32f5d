"""What a Gemini request costs in tokens, and what of it the implicit cache already holds. Estimates, but steady ones.

The same text always counts the same, so tests can compare figures; they are not the service's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thinklsp.simulator.google.contents import Content
from thinklsp.simulator.prompt_cache import InputUsage, Item, text_tokens
from thinklsp.simulator.scenario import UsageOverride

# Nothing is marked for the implicit cache: every prefix is kept, for as long as a marked one elsewhere.
_LIFETIME = "5m"
_BLOB_TOKENS = 258


def items(body: Mapping[str, Any], contents: tuple[Content, ...], key: str) -> tuple[Item, ...]:
    """The request as cacheable units, in the order tools, system, contents. `key`: whose cache, and which model's."""
    digest = key
    result: list[Item] = []
    for unit, tokens in _units(body, contents):
        digest = hashlib.sha256(f"{digest}{unit}".encode("utf-8", "surrogatepass")).hexdigest()
        result.append(Item(digest, tokens, _LIFETIME))
    return tuple(result)


def _units(body: Mapping[str, Any], contents: tuple[Content, ...]) -> Iterator[tuple[str, int]]:
    for name in ("tools", "system_instruction"):
        if body.get(name):
            text = json.dumps(body[name], ensure_ascii=False)
            yield f"{name} {text}", text_tokens(text)
    for content in contents:
        for part in content.parts:
            yield f"{content.role} {json.dumps(part, ensure_ascii=False)}", 1 + _part_tokens(part)


def _part_tokens(part: Mapping[str, Any]) -> int:
    if "inline_data" in part or "file_data" in part:
        return _BLOB_TOKENS
    bare = {name: value for name, value in part.items() if name not in ("thought_signature", "thought")}
    return text_tokens(str(bare["text"]) if set(bare) == {"text"} else json.dumps(bare, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Figures:
    """The usage of one answer. `thoughts` and `output` are what it comes to in the end; scripted figures win."""

    spent: InputUsage
    thoughts: int
    output: int
    given: UsageOverride

    def so_far(self, thoughts: int, output: int, *, last: bool) -> dict[str, Any]:
        """The figures of one chunk, cumulative; those that are nothing are left out."""
        prompt = _or(self.given.input_tokens, self.spent.total)
        cached = min(_or(self.given.cache_read_tokens, self.spent.read), prompt)
        all_thoughts = _or(self.given.thinking_tokens, self.thoughts)
        # Elsewhere output counts thinking in; here it is told apart.
        all_output = max(_or(self.given.output_tokens, self.output + all_thoughts) - all_thoughts, 0)
        thoughts = all_thoughts if last else min(thoughts, all_thoughts)
        output = all_output if last else min(output, all_output)
        return {
            "promptTokenCount": prompt,
            **({"cachedContentTokenCount": cached} if cached else {}),
            **({"candidatesTokenCount": output} if output else {}),
            **({"thoughtsTokenCount": thoughts} if thoughts else {}),
            "totalTokenCount": prompt + output + thoughts,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
        }


def _or(given: int | None, estimate: int) -> int:
    return estimate if given is None else given
