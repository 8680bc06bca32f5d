"""The kinds of Chat Completions servers and their differences, which are read from `chat_servers.toml`.

The host and port of the base URL determine the kind of server unless the user sets the kind.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal, assert_never
from urllib.parse import urlsplit

from thinklsp.core.choices import Effort, ReasoningEcho
from thinklsp.core.errors import SettingsError
from thinklsp.providers.base import Thinking

_GENERIC = "generic"
_SECTION = "providers.openai-compatible"
_DEEPSEEK = "deepseek"


@dataclass(frozen=True, slots=True)
class ChatServer:
    """A kind of server, with the user's own settings for it.

    `echo` is the field in which earlier thinking is sent back to the server. The value `auto` selects the field in
    which the thinking arrived. If `demands_reasoning` is true, an answer with tool calls must have a
    `reasoning_content` field, which may be empty. `effort` and `budget` are the request fields for the effort and the
    thinking budget. Dots separate nesting levels, and an empty string means that the server has no such field.
    `efforts` maps thinklsp's efforts to the server's names. `off` contains the request fields that turn thinking off.
    `output_cap` is the request field for the maximum number of output tokens.

    `parsers` names the settings to check if the server sends unparsed output, and is empty if the user cannot change
    them. If `think_tags` is true, `<think>…</think>` at the start of an answer is thinking.
    """

    name: str
    echo: ReasoningEcho
    demands_reasoning: bool
    effort: str
    efforts: Mapping[Effort, str] = field(hash=False)
    off: Mapping[str, Any] = field(hash=False)
    budget: str
    output_cap: Literal["max_tokens", "max_completion_tokens"]
    parsers: str
    think_tags: bool = False

    @property
    def native_efforts(self) -> tuple[Effort, ...]:
        """The efforts for which the server uses the same name as thinklsp, in ascending order."""
        return tuple(effort for effort, word in self.efforts.items() if word == effort)

    def adapt_to_model(self, model_id: str) -> ChatServer:
        """Return the server's settings for a model.

        DeepSeek models require `reasoning_content` even if the kind of server is unknown.
        """
        is_deepseek = self.name == _GENERIC and self.echo != "none" and model_id.lower().startswith(_DEEPSEEK)
        return replace(self, demands_reasoning=True) if is_deepseek else self


def resolve_server(base_url: str, *, kind: str | None, echo: ReasoningEcho | None, think_tags: bool) -> ChatServer:
    """Return the settings for a kind of server. By default, the host or port of the base URL determines the kind.

    Unknown servers get the generic settings. Raises SettingsError if `kind` is unknown.
    """
    rows = _load_rows()
    name = _guess_kind(base_url) if kind is None else kind
    if name not in rows:
        raise SettingsError(
            f"{_SECTION}.server", f"{name!r} is not a known kind of server. Set `server` to one of: {', '.join(rows)}."
        )
    facts = {key: value for key, value in rows[name].items() if key not in ("hosts", "ports")}
    server = ChatServer(name, **facts, think_tags=think_tags)
    if echo is None:
        return server
    # If thinking is not sent back, `reasoning_content` is not required either.
    return replace(server, echo=echo, demands_reasoning=server.demands_reasoning and echo != "none")


def is_claude(model_id: str) -> bool:
    """Return whether a model ID belongs to a Claude model. Claude prompts are cached only up to cache marks."""
    return "claude" in model_id.lower()


def build_thinking_fields(server: ChatServer, thinking: Thinking) -> dict[str, Any]:
    """Return the request fields that control thinking. An empty dict selects the server's default."""
    match thinking.form:
        case "unset":
            return {}
        case "off" | "between_tools":
            return dict(server.off)
        case "adaptive":
            return _build_effort_field(server, thinking)
        case "manual":
            # A request contains either a budget or an effort, never both.
            if server.budget and thinking.budget_tokens is not None:
                return _build_nested_field(server.budget, thinking.budget_tokens)
            return _build_effort_field(server, thinking)
        case _:
            assert_never(thinking.form)


def _build_effort_field(server: ChatServer, thinking: Thinking) -> dict[str, Any]:
    return {} if thinking.effort is None else _build_nested_field(server.effort, server.efforts[thinking.effort])


def _build_nested_field(path: str, value: object) -> dict[str, Any]:
    *outer, last = path.split(".")
    fields: dict[str, Any] = {last: value}
    for key in reversed(outer):
        fields = {key: fields}
    return fields


def _guess_kind(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return _GENERIC
    rows = _load_rows()
    by_host = (name for name, row in rows.items() if host in row["hosts"])
    by_port = (name for name, row in rows.items() if port in row["ports"])
    return next(by_host, None) or next(by_port, _GENERIC)


@lru_cache(maxsize=1)
def _load_rows() -> Mapping[str, Mapping[str, Any]]:
    """Load the rows in file order, with `generic` last. Missing fields get the generic values."""
    rows = tomllib.loads(files(__package__).joinpath("chat_servers.toml").read_text("utf-8"))
    usual = rows.pop(_GENERIC)
    return {name: {**usual, "hosts": [], "ports": [], **row} for name, row in rows.items()} | {_GENERIC: usual}
