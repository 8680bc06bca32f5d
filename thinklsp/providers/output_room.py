"""The room for an answer, as providers report it if a prompt and the requested output together are too long."""

from __future__ import annotations

import re

from thinklsp.core.errors import ContextWindowExceeded

# The patterns take long for a long text without a match.
_MAX_CHARACTERS = 1_000
# The texts of Anthropic and Bedrock, of vLLM's versions, of text-generation-inference and Together, and of OpenAI,
# DeepSeek, OpenRouter and SGLang. `total` is the prompt and the output.
_TEXTS = tuple(
    re.compile(text, re.DOTALL)
    for text in (
        r"(?P<prompt>\d+) \+ (?P<output>\d+) > (?P<window>\d+)",
        r"(?P<output>\d+) > (?P<window>\d+) - (?P<prompt>\d+)",
        r"context length is (?P<window>\d+) .*requested (?P<output>\d+) output tokens .* (?P<prompt>\d+) input tokens",
        r"<= (?P<window>\d+)\. given: (?P<prompt>\d+) `inputs` tokens and (?P<output>\d+) `max_new_tokens`",
        r"context length \w+ (?P<window>\d+) .*requested \D*(?P<total>\d+) .* (?P<output>\d+) \D+ the (?:comple|out)",
    )
)


class OutputTooLong(ContextWindowExceeded):
    """The error raised when a prompt fits the context window, but not together with the requested output.

    `output_left` is the number of tokens that are left for the output.
    """

    def __init__(self, message: str, output_left: int) -> None:
        super().__init__(message)
        self.output_left = output_left


def find_output_room(message: str) -> int | None:
    """Return the number of tokens that are left for the output, or None if the message does not name the output."""
    for text in _TEXTS:
        if (match := text.search(message[:_MAX_CHARACTERS].lower())) is not None:
            found = {name: int(number) for name, number in match.groupdict().items()}
            prompt = found["prompt"] if "prompt" in found else found["total"] - found["output"]
            left = found["window"] - prompt
            return left if 0 < left < found["output"] else None
    return None
