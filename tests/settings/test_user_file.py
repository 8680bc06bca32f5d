"""The user's file, keys and hosts: its permissions, its contents, and that no message contains a secret."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.settings.test_sources import NO_FILE, SECRET, user
from thinklsp.core.errors import SettingsError
from thinklsp.providers.base import Endpoint
from thinklsp.providers.catalogue import Catalogue, Price
from thinklsp.settings.access import find_key_source, list_keyed_providers, read_external_key, resolve_access
from thinklsp.settings.model import read_value
from thinklsp.settings.sources import load_user_settings, resolve_settings


def load(path: Path) -> Any:
    return load_user_settings({"THINKLSP_CONFIG": str(path)})


@pytest.mark.parametrize(
    ("mode", "allowed"), [(0o600, True), (0o644, True), (0o620, False), (0o602, False), (0o666, False)]
)
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, mode: int, allowed: bool) -> None:
    path = tmp_path / "config.toml"
    path.write_text('model = "m"')
    path.chmod(mode)
    # A link is judged by what it leads to: dotfiles are often kept that way.
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    for way in (path, link):
        if allowed:
            assert load(way).from_file == {"model": "m"}
        else:
            with pytest.raises(SettingsError, match="chmod 600"):
                load(way)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, data in (("big", b"#" * 1_000_001), ("no text", b'model = "\xff"')):
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "big"):
        with pytest.raises(SettingsError, match="not a regular file"):
            load(path)
    with pytest.raises(SettingsError, match="not valid UTF-8"):
        load(tmp_path / "no text")
    assert load(tmp_path / "absent").from_file == {}


WRONG: dict[str, tuple[str, str]] = {
    "no TOML": ('model = "m', "not valid TOML"),
    "a key in the file": (f'[providers.anthropic]\napi_key = "{SECRET}"', "providers.anthropic.api_key"),
    "another provider": (f'[providers.other]\nbase_url = "{SECRET}"', "providers.other: the provider is unknown"),
    "a wrong type": (f'[network]\nproxy = ["{SECRET}"]', "network.proxy"),
    "a command that is none": ("[providers.anthropic]\napi_key_command = []", "api_key_command"),
    "a kind of server elsewhere": ('[providers.openai]\nserver = "vllm"', "providers.openai.server"),
    "tags elsewhere": ("[providers.google]\nthink_tags = true", "providers.google.think_tags"),
    "a field for reasoning": (f'[providers.openai-compatible]\nreasoning = "{SECRET}"', "openai-compatible.reasoning"),
    "a model of nobody": (f'[models.other."{SECRET}"]\nmanual = true', "models.other: the provider is unknown; it"),
    "a model that is no table": (f'[models]\nopenai = "{SECRET}"', "models.openai"),
    "a row that is no table": (f'[models.openai]\ngpt = "{SECRET}"', "models.openai.gpt"),
    "a word for a switch": ('[acp]\nallow_auto = "yes"', "acp.allow_auto"),
    "a log level": ('[log]\nlevel = "loud"', "log.level"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_in_the_file_are_named(tmp_path: Path, case: str) -> None:
    toml, named = WRONG[case]
    with pytest.raises(SettingsError) as refused:
        user(toml, tmp_path)
    assert named in str(refused.value)
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_settings_stand_in_the_file_in_the_way_of_toml(tmp_path: Path) -> None:
    made = user(
        'max_steps = 5\neffort_by_action = {own_action = "low"}\n[thinking]\nmode = "manual"\nbudget_tokens = 2048\n'
        '[budget]\nusd_per_turn = 1\n[actions]\ndisabled = ["fix"]\n[chat]\nfile_suffix = ".ai.md"',
        tmp_path,
    )
    assert made.problems == ()
    settings = resolve_settings(made).settings
    expected = {
        "maxSteps": 5, "effortByAction": {"own_action": "low"}, "thinking.mode": "manual", "budget.usdPerTurn": 1.0,
        "thinking.budgetTokens": 2048, "actions.disabled": ("fix",), "chat.fileSuffix": ".ai.md",
    }  # fmt: skip
    assert {key: read_value(settings, key) for key in expected} == expected


def test_what_the_user_says_of_models_is_kept_as_plain_data(tmp_path: Path) -> None:
    made = user(
        '[models.openai-compatible."qwen3:8b"]\ncontext_window = 131072\nprice = { input = 0.1, output = 0.2 }\n'
        '[models.google."gemini-2.5-pro"]\noutput_cap = 10',
        tmp_path,
    )
    assert made.problems == ()
    assert made.file.models == {
        "openai-compatible": {"qwen3:8b": {"context_window": 131_072, "price": {"input": 0.1, "output": 0.2}}},
        "google": {"gemini-2.5-pro": {"output_cap": 10}},
    }
    # The catalogue takes it as it is.
    model = Catalogue(made.file.models).find_model("openai-compatible", "qwen3:8b")
    assert (model.context_window, model.price) == (131_072, Price(0.1, 0.2))
    assert user().file.models == {}


def test_compatible_server_settings_belong_to_its_url(tmp_path: Path) -> None:
    made = user(
        '[providers.openai-compatible]\nbase_url = "http://localhost:1/v1"\nserver = "vllm"\n'
        'reasoning = "reasoning_content"\nthink_tags = true',
        tmp_path,
        OPENAI_API_KEY="k",
    )
    access = resolve_access("openai-compatible", made)
    assert (access.server, access.reasoning, access.think_tags) == ("vllm", "reasoning_content", True)
    other = resolve_access("openai", made)
    assert (other.server, other.reasoning, other.think_tags) == (None, None, False)


def test_wrong_user_file_settings_are_reported_alone(tmp_path: Path) -> None:
    made = user(f'model = "m"\neffort = "{SECRET}"\n[thinkin]\nmode = "{SECRET}"', tmp_path)
    assert all(any(name in problem for problem in made.problems) for name in ("thinkin.mode", "effort"))
    assert SECRET not in "".join(made.problems)
    assert made.from_file == {"model": "m"}


@pytest.mark.parametrize(
    ("toml", "meant"),
    [('[mcpServers.time]\ncommand = "x"', "mcp.servers"), ('[permision]\nallow = ["x"]', "permissions")],
)
def test_a_mistyped_section_is_named_with_the_nearest(tmp_path: Path, toml: str, meant: str) -> None:
    [problem] = user(toml, tmp_path).problems
    assert problem.endswith(f" in your config.toml. Did you mean `{meant}`?")


GATEWAY = '[providers.anthropic]\nbase_url = "https://proxy.example"'

COMMAND = 'api_key_command = ["false"]'
CLAUDE, GOOGLE = "https://api.anthropic.com", "https://generativelanguage.googleapis.com"
COMPATIBLE_FILE = f'[providers.openai-compatible]\nbase_url = "http://localhost:2/v1"\n{COMMAND}'
LOCAL = {"THINKLSP_COMPATIBLE_BASE_URL": "http://localhost:1/v1"}
BOTH_KEYS = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t"}
# Provider, file, environment -> base URL, key, its source, whether it is a bearer's. The environment beats the file,
# and the variable that the file names is the first of it.
ACCESS: list[tuple[str, str, dict[str, str], tuple[str, str, str, bool]]] = [
    ("anthropic", "", {"ANTHROPIC_API_KEY": " k "}, (CLAUDE, "k", "ANTHROPIC_API_KEY", False)),
    ("anthropic", "", {"ANTHROPIC_AUTH_TOKEN": "t"}, (CLAUDE, "t", "ANTHROPIC_AUTH_TOKEN", True)),
    ("anthropic", "", BOTH_KEYS | {"ANTHROPIC_BASE_URL": "http://localhost:1/"},
     ("http://localhost:1", "k", "ANTHROPIC_API_KEY", False)),
    ("openai", "", {"OPENAI_API_KEY": "k"}, ("https://api.openai.com/v1", "k", "OPENAI_API_KEY", False)),
    ("google", "", {"GOOGLE_API_KEY": "k"}, (GOOGLE, "k", "GOOGLE_API_KEY", False)),
    ("openai-compatible", "", LOCAL, ("http://localhost:1/v1", "", "none needed", False)),
    ("anthropic", f'{GATEWAY}\napi_key_env = "MINE"', {"MINE": "m"} | BOTH_KEYS,
     ("https://proxy.example", "m", "MINE", False)),
    ("anthropic", f'{GATEWAY}\napi_key_env = "MINE"\n{COMMAND}',
     {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://other.example"},
     ("https://other.example", "k", "ANTHROPIC_API_KEY", False)),
    ("anthropic", f"{GATEWAY}\n{COMMAND}", {"ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_BASE_URL": "  "},
     ("https://proxy.example", "t", "ANTHROPIC_AUTH_TOKEN", True)),
    ("openai-compatible", COMPATIBLE_FILE, LOCAL | {"THINKLSP_COMPATIBLE_API_KEY": "k"},
     ("http://localhost:1/v1", "k", "THINKLSP_COMPATIBLE_API_KEY", False)),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "toml", "environment", "expected"), ACCESS)
def test_host_and_key(
    tmp_path: Path, provider: Any, toml: str, environment: dict[str, str], expected: tuple[str, str, str, bool]
) -> None:
    made = user(toml, tmp_path, **environment)
    assert provider in list_keyed_providers(made)
    access = resolve_access(provider, made)
    assert (access.base_url, access.api_key, access.bearer) == (expected[0], expected[1], expected[3])
    assert expected[2] in access.source
    # No command is run for a key that is there.
    assert find_key_source(provider, made) is None


NO_KEY: list[tuple[str, str, dict[str, str], str]] = [
    ("anthropic", "", {}, "Set ANTHROPIC_API_KEY"),
    ("anthropic", "", {"ANTHROPIC_API_KEY": "  "}, "Set ANTHROPIC_API_KEY"),
    ("anthropic", '[providers.anthropic]\napi_key_env = "MINE"', {"OPENAI_API_KEY": "k"}, "Set MINE"),
    ("openai-compatible", "", {"THINKLSP_COMPATIBLE_API_KEY": "k"}, "Set THINKLSP_COMPATIBLE_BASE_URL"),
]


@pytest.mark.parametrize(("provider", "toml", "environment", "said"), NO_KEY)
def test_without_a_key_it_says_what_to_set(
    tmp_path: Path, provider: Any, toml: str, environment: dict[str, str], said: str
) -> None:
    made = user(toml, tmp_path, **environment)
    assert provider not in list_keyed_providers(made)
    with pytest.raises(SettingsError, match=said):
        resolve_access(provider, made)


async def test_key_command_runs_only_without_environment_key(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    argv = ("sh", "-c", f"echo ' from command '; touch {ran}")
    made = user(f"[providers.anthropic]\napi_key_command = {list(argv)}", tmp_path, ANTHROPIC_API_KEY=" ")
    assert "anthropic" in list_keyed_providers(made)
    assert find_key_source("anthropic", made) == argv
    assert find_key_source("openai", made) is None
    access = resolve_access("anthropic", made)
    assert ("key command" in access.source, access.api_key, ran.exists()) == (True, "", False)
    assert await read_external_key("anthropic", argv, {}) == "from command"
    assert ran.exists()
    assert resolve_access("anthropic", made, external_key="k").api_key == "k"


FAILING: list[tuple[list[str], str]] = [
    (["false"], "failed"),
    (["/nonexistent/command"], "failed"),
    (["a\0b"], "failed"),
    ([sys.executable, "-c", f"raise SystemExit({SECRET!r})"], "failed"),
    (["sh", "-c", f"echo {SECRET}; exit 3"], "failed"),
    (["true"], "printed nothing"),
    (["sleep", "60"], "did not finish within 0 seconds"),
    (["sh", "-c", "sleep 60 & sleep 60"], "did not finish"),
]


@pytest.mark.parametrize(("argv", "said"), FAILING)
async def test_a_key_command_that_fails_is_told(argv: list[str], said: str) -> None:
    with pytest.raises(SettingsError, match=f"key command for anthropic {said}") as failed:
        await read_external_key("anthropic", tuple(argv), {}, seconds=0.3 if "sleep" in str(argv) else 60)
    assert SECRET not in "".join(traceback.format_exception(failed.value))


PRINTING = {
    "a helper keeps its output open": "sleep 100 & echo k",
    "much, and then the key": "head -c 60000 /dev/zero | tr '\\0' ' '; { sleep 100 & }; echo k",
    "its output closed before its end": "echo k; exec >&-; sleep 0.2",
}


@pytest.mark.parametrize("script", PRINTING.values(), ids=PRINTING)
async def test_a_key_is_there_when_its_command_has_ended(script: str) -> None:
    assert await read_external_key("anthropic", ("sh", "-c", script), {}, seconds=60) == "k"


async def test_a_key_command_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    task = asyncio.create_task(
        read_external_key("anthropic", ("sh", "-c", f"exec cat > {tmp_path / 'pipe'} < /dev/zero"), {})
    )
    with await asyncio.to_thread(open, tmp_path / "pipe", "rb") as pipe:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The pipe ends because its writer has been ended.
        while await asyncio.to_thread(pipe.read, 65536):
            pass


# A base URL that can never work -> what is said of it.
WRONG_URLS: list[tuple[str, str]] = [
    (f"https://me:{SECRET}@host", "password"),
    (f"http://[::1/{SECRET}", "not a valid URL"),
    (f"http://host:{SECRET}/v1", "not a valid URL"),
    (f"https://host/v1?k={SECRET}", "has a query or a fragment; remove everything from `[?]` on"),
    (f"https://host/v1#{SECRET}", "from `#` on"),
    ("https://host/v1?", "from `[?]` on"),
]


@pytest.mark.parametrize(("url", "said"), WRONG_URLS)
@pytest.mark.parametrize("provider", ["anthropic", "openai-compatible"])
def test_invalid_base_url_is_rejected_without_showing_it(tmp_path: Path, provider: Any, url: str, said: str) -> None:
    variable = "ANTHROPIC_BASE_URL" if provider == "anthropic" else "THINKLSP_COMPATIBLE_BASE_URL"
    toml = f'[providers.{provider}]\nbase_url = "{url}"'
    for made, source in (
        (user(**{"ANTHROPIC_API_KEY": "k", variable: url}), variable),
        (user(toml, tmp_path, ANTHROPIC_API_KEY="k"), "your config.toml"),
    ):
        with pytest.raises(SettingsError, match=said) as refused:
            resolve_access(provider, made)
        assert f"The base URL of {provider}, from {source}" in str(refused.value)
        assert SECRET not in "".join(traceback.format_exception(refused.value))


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40))
def test_no_secret_shows_in_any_text_form(tail: str) -> None:
    secret = f"canary{tail}"
    environment = NO_FILE | dict.fromkeys(
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "THINKLSP_EFFORT"), secret
    )
    made = load_user_settings(environment)
    access = resolve_access("anthropic", made)
    endpoint = Endpoint("anthropic", access.base_url, access.api_key, access.bearer, {"x-secret": secret})
    shown = [made, access, endpoint, endpoint.build_origin("m"), resolve_settings(made), made.problems]
    for value in shown:
        assert secret not in f"{value!r}{value!s}"
    assert access.api_key == secret
