"""Which adapter speaks to which provider. The order is that in which `auto` looks for a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import Adapter, Endpoint
from thinklsp.providers.capabilities import Capabilities
from thinklsp.providers.google.adapter import GoogleAdapter
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_chat.servers import ChatServer, server_for
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter
from thinklsp.settings import Access, Provider

PROVIDERS: tuple[Provider, ...] = ("anthropic", "openai", "google", "openai-compatible")

# The offline stand-in is spoken to as the first of them.
_ADAPTERS: Mapping[str, Adapter] = {
    "simulator": AnthropicAdapter(),
    "anthropic": AnthropicAdapter(),
    "openai": OpenAiResponsesAdapter(),
    "google": GoogleAdapter(),
}


def adapter_for(provider: Provider, access: Access | None) -> Adapter:
    """Compatible servers differ: theirs is made for the address. Raises SettingsError for a kind that is not known."""
    return OpenAiChatAdapter(_server(access)) if provider == "openai-compatible" else _ADAPTERS[provider]


def on_server(model: ModelInfo, access: Access | None, told: Capabilities | None) -> ModelInfo:
    """What the server makes of a model that the catalogue does not list: levels of effort and window are the server's.

    `told`: what it has said of its models, if it has been asked."""
    if model.provider != "openai-compatible" or model.known:
        return model
    window = None if told is None else told.window_of(model.id)
    return replace(model, efforts=_server(access).levels, context_window=window or model.context_window)


def _server(access: Access | None) -> ChatServer:
    if access is None:
        raise AssertionError("a compatible server has an address")
    return server_for(access.base_url, kind=access.server, echo=access.reasoning, think_tags=access.think_tags)


def endpoint_of(access: Access) -> Endpoint:
    return Endpoint(access.provider, access.base_url, access.api_key, access.bearer, access.headers, access.source)
