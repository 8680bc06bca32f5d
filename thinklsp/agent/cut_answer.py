"""Why an answer ends at a limit, and what can be done about it: services have one word for several causes."""

from __future__ import annotations

from thinklsp.agent.turn_state import TurnConfig
from thinklsp.core.usage import Usage

# Servers stop a little before the end, and count what they add themselves.
_NEARLY = 0.98


def is_window_full(config: TurnConfig, usage: Usage) -> bool:
    """Whether what was read and written has come to the model's window."""
    window, read, written = config.model.context_window, usage.input_tokens, usage.output_tokens
    return window is not None and read is not None and written is not None and read + written >= _NEARLY * window


def why_cut(config: TurnConfig, usage: Usage) -> str:
    """A sentence for an answer that ended at a limit of its length, with what helps."""
    asked, cap, written = config.max_tokens, config.model.output_cap, usage.output_tokens
    ended_itself = asked is None or (written is not None and written < _NEARLY * asked)
    if ended_itself and config.model.provider != "openai-compatible":
        return "The service ended the answer at a limit of its own, not at maxTokens. Ask for the rest, or for less."
    if ended_itself or asked is None:
        return (
            "The server ended the answer at a limit of its own, not at maxTokens: most often the context that it was "
            "started with is full. Compact the conversation, or raise the context length on the server."
        )
    if cap is not None and asked >= cap:
        return f"The answer was cut: {asked:,} tokens are the most that {config.model.id} writes at once. Ask for less."
    return f"The answer was cut at maxTokens, {asked:,} tokens. Raise it or ask for less."
