"""What is particular to each kind of server that speaks chat completions, read once from `servers.toml`.

Which kind stands at an address is guessed by host and port unless the user says it. How messages are written and read
is the same for all of them and stands elsewhere.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal, assert_never, get_args
from urllib.parse import urlsplit

from thinklsp.core.choices import Effort
from thinklsp.core.errors import SettingsError
from thinklsp.providers.base import Thinking

Echo = Literal["auto", "reasoning", "reasoning_content", "reasoning_details", "none"]

_ECHOES: Mapping[str, Echo] = {rule: rule for rule in get_args(Echo)}
_GENERIC = "generic"
_SECTION = "providers.openai-compatible"
_DEEPSEEK = "deepseek"


@dataclass(frozen=True, slots=True)
class ChatServer:
    """One kind of server, with what the user has said about it.

    `echo`: under which field the model's earlier thinking goes back to the server that gave it; `auto`: under that in
    which it came. `demands_reasoning`: an answer with tool calls must have `reasoning_content`, be it empty. `effort`
    and `budget`: where level and budget of thinking stand in the request, levels of nesting joined by dots, empty where
    there is no such thing; `efforts`: the server's words for ours. `off`: what switches thinking off. `output_cap`: the
    name of the limit of output tokens. `parsers`: what to look at when its answers come unparsed, empty where the user
    cannot change it. `think_tags`: `<think>…</think>` at the start of an answer is thinking.
    """

    name: str
    echo: Echo
    demands_reasoning: bool
    effort: str
    efforts: Mapping[Effort, str] = field(hash=False)
    off: Mapping[str, Any] = field(hash=False)
    budget: str
    output_cap: Literal["max_tokens", "max_completion_tokens"]
    parsers: str
    think_tags: bool = False

    @property
    def levels(self) -> tuple[Effort, ...]:
        """The levels of our scale that it takes as they are, lowest first."""
        return tuple(effort for effort, word in self.efforts.items() if word == effort)

    def for_model(self, model_id: str) -> ChatServer:
        """DeepSeek's models keep their demand behind gateways of which nothing is known."""
        is_deepseek = self.name == _GENERIC and self.echo != "none" and model_id.lower().startswith(_DEEPSEEK)
        return replace(self, demands_reasoning=True) if is_deepseek else self


def server_for(base_url: str, *, kind: str | None, echo: str | None, think_tags: bool) -> ChatServer:
    """By the kind that the user names, else by host, else by port, else generic.

    Raises SettingsError for a kind or a replay rule that does not exist.
    """
    rows = _rows()
    name = _kind_at(base_url) if kind is None else kind
    if name not in rows:
        raise SettingsError(
            f"{_SECTION}.server", f"There is no kind of server {name!r}. Set server to one of: {', '.join(rows)}."
        )
    server = replace(_server(name, rows[name]), think_tags=think_tags)
    if echo is None:
        return server
    rule = _ECHOES.get(echo)
    if rule is None:
        listed = ", ".join(_ECHOES)
        raise SettingsError(f"{_SECTION}.reasoning", f"There is no {echo!r} for reasoning. Set it to one of: {listed}.")
    # Who switches the replay off means the demanded field, too.
    return replace(server, echo=rule, demands_reasoning=server.demands_reasoning and rule != "none")


def kinds() -> tuple[str, ...]:
    """The names of all kinds that a user may choose."""
    return tuple(_rows())


def thinking_fields(server: ChatServer, thinking: Thinking) -> dict[str, Any]:
    """What of the request's body says how to think. Empty where the server is to do as it does by itself."""
    match thinking.form:
        case "unset":
            return {}
        case "off" | "between_tools":
            return dict(server.off)
        case "adaptive":
            return _effort_field(server, thinking)
        case "manual":
            # Where both exist they are alternatives.
            if server.budget and thinking.budget_tokens is not None:
                return _nested(server.budget, thinking.budget_tokens)
            return _effort_field(server, thinking)
        case _:
            assert_never(thinking.form)


def _effort_field(server: ChatServer, thinking: Thinking) -> dict[str, Any]:
    return {} if thinking.effort is None else _nested(server.effort, server.efforts[thinking.effort])


def _nested(path: str, value: object) -> dict[str, Any]:
    *outer, last = path.split(".")
    fields: dict[str, Any] = {last: value}
    for key in reversed(outer):
        fields = {key: fields}
    return fields


def _kind_at(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return _GENERIC
    rows = _rows()
    by_host = (name for name, row in rows.items() if host in row["hosts"])
    by_port = (name for name, row in rows.items() if port in row["ports"])
    return next(by_host, None) or next(by_port, _GENERIC)


@lru_cache(maxsize=1)
def _rows() -> Mapping[str, Mapping[str, Any]]:
    """Every row complete, in the order of the file, `generic` last."""
    rows = tomllib.loads(files(__package__).joinpath("servers.toml").read_text("utf-8"))
    usual = rows.pop(_GENERIC)
    return {name: {**usual, "hosts": [], "ports": [], **row} for name, row in rows.items()} | {_GENERIC: usual}


def _server(name: str, row: Mapping[str, Any]) -> ChatServer:
    facts = {key: value for key, value in row.items() if key not in ("hosts", "ports")}
    return ChatServer(name, **facts)
