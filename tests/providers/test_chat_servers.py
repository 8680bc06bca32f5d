"""Kinds of servers: how one is found, what each is sent about thinking, and that every row says something true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.chat_samples import KINDS, PLAIN, body_of, model, server
from thinklsp.core.choices import EFFORTS
from thinklsp.core.errors import SettingsError
from thinklsp.providers.chat_servers import resolve_server
from thinklsp.providers.thinking import find_nearest_effort


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://localhost:11434/v1", "ollama"),
        ("http://127.0.0.1:8080/v1", "llama.cpp"),
        ("http://[::1]:9931/v1", "llama.cpp"),
        ("https://gpu.example.com:8000/v1", "vllm"),
        ("http://10.0.0.2:1234/v1", "lm-studio"),
        ("https://api.deepseek.com/v1", "deepseek"),
        ("https://API.DeepSeek.com", "deepseek"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.moonshot.ai/v1", "moonshot"),
        ("https://api.moonshot.cn/v1", "moonshot"),
        ("https://api.openai.com/v1", "openai"),
        ("https://api.openai.com:8000/v1", "openai"),
        ("https://api.deepseek.com.evil.example/v1", "generic"),
        ("https://llm.example.com/v1", "generic"),
        ("https://llm.example.com:99999/v1", "generic"),
        ("", "generic"),
    ],
)
def test_a_server_is_known_by_host_then_port(url: str, kind: str) -> None:
    assert resolve_server(url, kind=None, echo=None, think_tags=False) == server(kind)


def test_the_user_knows_better() -> None:
    chosen = resolve_server("http://localhost:11434/v1", kind="vllm", echo="reasoning", think_tags=True)
    assert chosen == replace(server("vllm"), echo="reasoning", think_tags=True)


def test_a_kind_that_does_not_exist_is_refused_with_the_list() -> None:
    with pytest.raises(SettingsError) as caught:
        resolve_server("http://localhost:1/v1", kind="olama", echo=None, think_tags=False)
    assert caught.value.key == "providers.openai-compatible.server"
    generic, *others = KINDS
    assert str(caught.value).endswith(f"one of: {', '.join((*others, generic))}.")


@pytest.mark.parametrize("kind", KINDS)
def test_levels_are_the_nearest_that_the_server_takes(kind: str) -> None:
    words = server(kind).efforts
    taken = server(kind).native_efforts
    assert taken == tuple(level for level in EFFORTS if words[level] == level)
    bent = {level for level in EFFORTS if words[level] != find_nearest_effort(taken, level)}
    # DeepSeek itself reads xhigh as high.
    assert bent == ({"xhigh"} if kind == "deepseek" else set())


def test_the_limit_of_output_has_two_names() -> None:
    for kind in KINDS:
        body = body_of(replace(PLAIN, max_tokens=99), server(kind))
        assert {key: body[key] for key in body if "max_" in key} == {server(kind).output_cap: 99}
        assert not [key for key in body_of(PLAIN, server(kind)) if "max_" in key]


def test_deepseek_behind_gateways_still_needs_its_reasoning() -> None:
    generic = server("generic")
    assert generic.adapt_to_model("DeepSeek-R2").demands_reasoning
    assert not generic.adapt_to_model("qwen3-distilled-from-deepseek").demands_reasoning
    assert not server("ollama").adapt_to_model("deepseek-r1:8b").demands_reasoning
    assert not server("generic", echo="none").adapt_to_model("deepseek-chat").demands_reasoning
    assert not server("deepseek", echo="none").adapt_to_model(model().id).demands_reasoning
    assert server("deepseek").adapt_to_model("anything").demands_reasoning
