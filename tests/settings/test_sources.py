"""The sources of settings, their precedence, and the settings that an editor or its repository cannot change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from thinklsp.settings.access import list_keyed_providers
from thinklsp.settings.model import KEYS, Settings, build_settings, build_settings_schema, read_value
from thinklsp.settings.sources import EditorSettings, load_user_settings, resolve_settings
from thinklsp.settings.user_file import UserSettings

NO_FILE = {"THINKLSP_CONFIG": "/nonexistent/config.toml"}
SECRET = "sk-canary-0123456789-abcdefghijkl"


def user(toml: str = "", folder: Path | None = None, **environment: str) -> UserSettings:
    if not toml:
        return load_user_settings(NO_FILE | environment)
    assert folder is not None
    path = folder / "config.toml"
    path.write_text(toml)
    path.chmod(0o600)
    return load_user_settings({"THINKLSP_CONFIG": str(path)} | environment)


def editor(raw: object) -> EditorSettings:
    return EditorSettings().apply_configuration(raw)[0]


# Key -> default and, where it is a choice, the choices in their order.
CONTRACT: dict[str, tuple[Any, list[str] | None]] = {
    "provider": ("auto", ["auto", "anthropic", "openai", "google", "openai-compatible", "simulator"]),
    "model": (None, None),
    "effort": ("auto", ["auto", "low", "medium", "high", "xhigh", "max"]),
    "effortByAction": ({}, None),
    "thinking.mode": ("auto", ["auto", "off", "adaptive", "manual", "normal", "ultra"]),
    "thinking.budgetTokens": (10_000, None),
    "thinking.display": ("status", ["status", "summary", "off"]),
    "thinking.summary": ("auto", ["auto", "concise", "detailed"]),
    "maxTokens": ("auto", None),
    "maxSteps": (32, None),
    "budget.usdPerTurn": (None, None),
    "budget.tokensPerTurn": (None, None),
    "budget.usdPerDay": (None, None),
    "compaction.auto": (True, None),
    "compaction.threshold": (0.75, None),
    "compaction.by": ("thinklsp", ["thinklsp", "provider"]),
    "compaction.thinkingAfter": ("keep", ["keep", "off"]),
    "edits.review": ("auto", ["auto", "always", "never"]),
    "verify": ("auto", ["auto", "always", "off"]),
    "actions.disabled": ((), None),
    "chat.fileSuffix": (".chat.md", None),
}


def test_settings_and_defaults_are_the_documented_ones() -> None:
    assert set(KEYS) == set(CONTRACT), "docs/contributing/add-a-setting.md says what a new setting needs"
    for key, (default, _) in CONTRACT.items():
        assert read_value(Settings(), key) == default, key


@pytest.mark.parametrize("key", CONTRACT)
def test_the_schema_knows_every_setting(key: str) -> None:
    default, choices = CONTRACT[key]
    whole = build_settings_schema()
    place: dict[str, Any] = whole
    for part in key.split("."):
        reference = place.get("$ref") or (place.get("allOf") or [{}])[0].get("$ref")
        place = whole["$defs"][reference.rpartition("/")[2]] if reference else place
        place = place["properties"][part]
    assert place["description"].endswith(".")
    assert place["default"] == (list(default) if isinstance(default, tuple) else default)
    assert place.get("enum") == choices
    assert whole["additionalProperties"] is False


# Weakest first. Each source sets what is above it, so the last one that speaks wins.
SOURCES = ["default", "user file", "environment", "editor settings", "session", "command"]


@pytest.mark.parametrize("strongest", range(len(SOURCES)))
def test_the_order_of_the_sources(strongest: int, tmp_path: Path) -> None:
    says = {name: f"model of {name}" for name in SOURCES[1 : strongest + 1]}
    toml = f'model = "{says["user file"]}"' if "user file" in says else ""
    environment = {"THINKLSP_MODEL": says["environment"]} if "environment" in says else {}
    made = resolve_settings(
        user(toml, tmp_path, **environment),
        editor({"model": says["editor settings"]}) if "editor settings" in says else None,
        overrides=tuple((name, {"model": says[name]}) for name in ("session", "command") if name in says),
    )
    name = SOURCES[strongest]
    assert made.settings.model == says.get(name)
    assert made.sources.get("model", "default") == name


# Of each setting: what the user has, what the editor says, and what counts then.
TIGHTEN: dict[str, list[tuple[Any, Any, Any]]] = {
    "maxSteps": [(None, 10, 10), (None, 33, 32), (5, 10, 5), (5, 3, 3)],
    "budget.usdPerTurn": [(None, 2.0, 2.0), (1.0, 2.0, 1.0), (1.0, 0.5, 0.5)],
    "budget.tokensPerTurn": [(1000, 2000, 1000)],
    "budget.usdPerDay": [(3.0, 1, 1.0)],
    "edits.review": [
        (None, "never", "auto"), ("always", "never", "always"), (None, "always", "always"),
        ("always", "auto", "always"), ("never", "always", "always"), ("never", "auto", "auto"),
        ("never", "never", "never"),
    ],
    "provider": [
        (None, "openai", "auto"), (None, "google", "google"), (None, "simulator", "simulator"),
        ("anthropic", "auto", "anthropic"), ("anthropic", "simulator", "anthropic"), ("anthropic", "google", "google"),
    ],
    "effort": [("low", "max", "max")],
    "thinking.mode": [("off", "manual", "manual")],
    "thinking.display": [("off", "summary", "summary")],
    "thinking.summary": [("concise", "detailed", "detailed")],
    "verify": [
        ("always", "off", "always"), ("always", "auto", "always"), ("off", "auto", "auto"), (None, "always", "always"),
    ],
    "compaction.thinkingAfter": [("off", "keep", "off"), (None, "off", "off")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "own", "asked", "counts"), [(key, *row) for key, rows in TIGHTEN.items() for row in rows]
)
def test_editor_settings_can_only_choose_or_tighten(key: str, own: Any, asked: Any, counts: Any) -> None:
    variable = {"maxSteps": "THINKLSP_MAX_STEPS"}.get(key) or "THINKLSP_" + "".join(
        f"_{c}" if c.isupper() else "_" if c == "." else c for c in key
    ).upper()
    settings = user_with(("anthropic", "google"), None, **({} if own is None else {variable: str(own)}))
    assert settings.problems == ()
    made = resolve_settings(settings, editor({key: asked}))
    assert read_value(made.settings, key) == counts
    # What does not count is said by its key, unless it makes no difference, and it is said once.
    told, sentences = EditorSettings().apply_configuration({key: asked}, settings)
    assert [key in sentence for sentence in sentences] == ([] if asked == counts else [True])
    assert told.apply_configuration({key: asked}, settings) == (told, ())


def test_all_that_would_loosen_is_one_sentence() -> None:
    asked = {"maxSteps": 99, "edits": {"review": "never"}, "budget": {"usdPerTurn": 2}, "provider": "openai"}
    loosening, unkeyed = EditorSettings().apply_configuration(asked, user(THINKLSP_BUDGET_USD_PER_TURN="1"))[1]
    assert ": budget.usdPerTurn, edits.review, maxSteps." in loosening
    assert "provider" in unkeyed
    assert "no key for openai" in unkeyed
    _, [said] = EditorSettings().apply_configuration({"provider": "simulator"}, user(THINKLSP_PROVIDER="google"))
    assert said == "The editor setting `provider` was ignored because your own settings choose google."


# Of one setting, each value pushed after the one before, and whether anything is said of it: what is wrong is told when
# it changes, and when it was right in between; editors push the same again and again.
PUSHED: list[tuple[str, list[tuple[Any, bool]]]] = [
    ("thinking.budgetTokens", [(1023, True), (1023, False), (500, True), (500, False), (2048, False), (500, True)]),
    ("effort", [("HIGH", True), (3, True), ("HIGH", True), ("high", False), ("HIGH", True), (None, False)]),
    ("maxSteps", [(True, True), (0, True), (1.5, True), (float("nan"), True), (float("nan"), False)]),
    ("maxSteps", [(99, True), (99, False), (98, True), (10, False), (98, True)]),
    ("provider", [("openai", True), ("google", True), ("google", False), ("anthropic", True), ("auto", False)]),
    ("edits.review", [("never", True), ("never", False), ("always", False), ("never", True)]),
    ("thinking", [("off", True), ("off", False), ({}, False), (5, True)]),
    ("baseUrl", [(SECRET, True), ("other", False), (None, False), (SECRET, False)]),
]


@pytest.mark.parametrize(("key", "pushed"), PUSHED)
def test_a_changed_wrong_value_is_told_and_the_same_one_is_not(key: str, pushed: list[tuple[Any, bool]]) -> None:
    mine, made = user(), EditorSettings()
    for value, told in pushed:
        made, sentences = made.apply_configuration({key: value, "model": "m"}, mine)
        assert [key in sentence for sentence in sentences] == [True] * told, value
        assert SECRET not in f"{made!r}{sentences}"


# What was pushed, then something in place of a whole group; and what of it is kept.
INSTEAD: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"thinking": {"mode": "manual", "budgetTokens": 2048}}, {"thinking": "off"}, ["thinking"]),
    ({"budget": {"usdPerTurn": 0.5, "tokensPerTurn": 9}}, {"budget": 5}, ["budget"]),
    ({"budget": {"usdPerTurn": 0.5}}, {"budget": []}, ["budget"]),
    ({"thinking.mode": "manual", "budget.usdPerDay": 1}, {"thinking": 1, "budget": 1}, ["thinking", "budget"]),
    ({"thinklsp": {"thinking": {"mode": "manual"}, "effort": "low"}}, {"thinklsp": "off"}, ["thinklsp"]),
]


@pytest.mark.parametrize(("former", "wrong", "named"), INSTEAD)
def test_value_in_place_of_a_group_is_rejected(former: dict[str, Any], wrong: dict[str, Any], named: list[str]) -> None:
    first = editor(former)
    second, sentences = first.apply_configuration(wrong)
    assert second.values == first.values
    assert [sentence.split()[2].strip("`") for sentence in sentences] == named
    assert all("must be an object" in sentence for sentence in sentences)
    assert second.apply_configuration({})[0].values == {}


MANUAL = {"mode": "manual", "budgetTokens": 2048}
BUDGET = {"thinking.mode": "manual", "thinking.budgetTokens": 2048, "model": "m"}
EFFORTS = {"effortByAction": {"fix": "high", "own.action": "low"}}
# What an editor sends, and the values that it means.
FORMS: list[tuple[Any, dict[str, Any]]] = [
    ({"thinking": MANUAL, "model": "m"}, BUDGET),
    (BUDGET, BUDGET),
    ({"thinklsp": {"thinking": MANUAL, "model": "m"}}, BUDGET),
    ({"thinklsp": BUDGET}, BUDGET),
    ({"thinklsp.thinking": MANUAL, "thinklsp.model": "m"}, BUDGET),
    ({"thinklsp.thinking.mode": "manual", "thinklsp.thinking.budgetTokens": 2048, "thinklsp": {"model": "m"}}, BUDGET),
    ({"thinklsp": {"thinking": MANUAL | {"display": None}, "model": "m", "effort": None}}, BUDGET),
    ({"thinklsp": {"thinking": MANUAL, "model": "m"}, "pylsp": {"model": "not ours"}}, BUDGET),
    ({"thinklsp": EFFORTS | {"actions": {"disabled": ["x"]}}}, EFFORTS | {"actions.disabled": ("x",)}),
    ({"effortByAction.fix": "high", "effortByAction.own.action": "low"}, EFFORTS),
    ({"thinklsp": {"effortByAction.fix": "high", "effortByAction": {"own.action": "low"}}}, EFFORTS),
    ({"thinklsp.effortByAction.fix": "high", "thinklsp.effortByAction": {"own.action": "low", "edit": None}}, EFFORTS),
    ({"thinklsp.effortByAction": {"own.action": "low"}, "thinklsp": {"effortByAction": {"fix": "high"}}}, EFFORTS),
    ({"effortByAction": {"own": {"action": "low"}, "fix": "high"}}, EFFORTS),
    ({"effortByAction": {"token": "low", "env": "high"}}, {"effortByAction": {"token": "low", "env": "high"}}),
]


@pytest.mark.parametrize(("raw", "values"), FORMS)
def test_every_form_of_a_key_means_the_same(raw: Any, values: dict[str, Any]) -> None:
    made, sentences = EditorSettings().apply_configuration(raw)
    assert (dict(made.values), sentences) == (values, ())


WHOLE: list[tuple[str, float, type]] = [
    ("maxSteps", 7.0, int),
    ("maxTokens", 1024.0, int),
    ("budget.tokensPerTurn", 1000.0, int),
    ("thinking.budgetTokens", 1024.0, int),
    ("budget.usdPerTurn", 2.0, float),
    ("budget.usdPerDay", 1e300, float),
]


@pytest.mark.parametrize(("key", "value", "kind"), WHOLE)
def test_integer_setting_accepts_fraction_of_zero(key: str, value: float, kind: type) -> None:
    """JSON has only one number type."""
    made, sentences = EditorSettings().apply_configuration({key: value})
    assert (dict(made.values), sentences) == ({key: value}, ())
    assert type(made.values[key]) is kind
    name = "THINKLSP_" + re.sub(r"(?=[A-Z])|\.", "_", key).upper()
    assert user(**{name: str(value)}).from_environment == {key: value}


def test_entries_of_a_setting_in_every_other_source(tmp_path: Path) -> None:
    for toml in (
        'effort_by_action.fix = "high"\neffort_by_action.own_action = "low"',
        '"effort_by_action.fix" = "high"\n[effort_by_action]\nown_action = "low"',
    ):
        made = user(toml, tmp_path)
        assert (made.problems, made.from_file) == ((), {"effortByAction": {"fix": "high", "own_action": "low"}})
    made = user(THINKLSP_EFFORT_BY_ACTION='{"edit": "low"}', THINKLSP_EFFORT_BY_ACTION_FIX="high")
    assert (made.problems, made.from_environment) == ((), {"effortByAction": {"edit": "low", "fix": "high"}})
    wrong = user(THINKLSP_EFFORT_BY_ACTION_FIX=SECRET)
    assert ["effortByAction" in problem for problem in wrong.problems] == [True]
    assert SECRET not in wrong.problems[0]


@pytest.mark.parametrize("raw", [None, 5, "x", [1, 2], True])
def test_what_is_no_object_changes_nothing(raw: object) -> None:
    first = editor({"model": "m"})
    assert first.apply_configuration(raw) == (first, ())


# Of each setting: the words of the limit, and values that exceed it.
REFUSED: dict[str, dict[str, tuple[Any, ...]]] = {
    "effort": {"'auto', 'low'": ("enormous", 5)},
    "provider": {
        "'openai-compatible' or 'simulator'. The previous": ("nobody",),
        "'simulator'. Use `openai-compatible` for Ollama and set THINKLSP_COMPATIBLE": ("ollama",),
        "Use `anthropic` for Claude.": ("claude",),
        "Use `google` for Gemini.": (" gemini",),
        "Use `openai-compatible` for LM Studio": ("lm-studio",),
    },
    "thinking.summary": {"'auto', 'concise' or 'detailed'": ("brief",)},
    "maxSteps": {"at least 1": (0, 0.0), "at most 1000": (1001,), "a whole number": ("ten", True, 1.5, float("inf"))},
    "thinking.budgetTokens": {
        "at least 1024": (1023, 500.0, 0, -1), "less than 128000": (128_000,), "a whole number": ("512", True),
    },
    "thinking.mode": {"'auto', 'off'": (["manual"],)},
    "maxTokens": {"at least 1024": (5,)},
    "budget.usdPerTurn": {"more than 0": (0,), "a number": ("1",)},
    "compaction.auto": {"true or false": ("yes",)},
    "compaction.threshold": {"at most 0.95": (1.5,)},
    "compaction.by": {"'thinklsp' or 'provider'": ("nobody",)},
    "actions.disabled": {"a list": ("fix",)},
    "effortByAction": {"'auto', 'low'": ({"fix": "huge"},), "an object": ("low",)},
    "effortByAction.fix": {"'auto', 'low'": ("huge",)},
    "chat.fileSuffix": {
        "text that matches": ("no dot", "./../x.md"), r"\.md$": (".py", ".md", ".chat.md.py"),
        "{1,37}": (f".{'x' * 99}.md",), "a text": (5,),
    },
    "model": {"at least 1 character": ("",), "at most 200 characters": ("m" * 201,), "a text": ("m\ud800",)},
    "thinking": {"an object": ("manual",)},
    "budget": {"an object": (5,)},
}  # fmt: skip
REFUSED_ROWS = [(key, value, limit) for key, rows in REFUSED.items() for limit in rows for value in rows[limit]]


@pytest.mark.parametrize(("key", "value", "limit"), REFUSED_ROWS)
def test_rejected_value_names_its_limit_and_is_not_applied(key: str, value: Any, limit: str) -> None:
    former = {"model": "m", "maxSteps": 7, "thinking": {"budgetTokens": 2048}, "effort": "low"}
    first = editor(former)
    second, sentences = first.apply_configuration(
        former | {key: value} if key in former else former | {"verify": "off", key: value}
    )
    [sentence] = sentences
    assert key.removesuffix(".fix") in sentence
    assert limit in sentence
    assert "right form" not in sentence
    assert not isinstance(value, str) or len(value) < 4 or value not in sentence.replace(key, "")
    if key in KEYS:
        assert second.values.get(key) == first.values.get(key)
    # The rest of the same message still counts.
    assert second.values["model" if key != "model" else "effort"] in ("m", "low")


# Who has a key, what the user has set, which provider the editor asks for; and whether a small budget counts then.
SMALL_BUDGETS: list[tuple[tuple[str, ...], str | None, Any, bool]] = [
    (("google",), None, None, True),
    (("google",), None, "google", True),
    (("google", "openai-compatible"), None, "openai-compatible", False),
    (("anthropic", "google"), None, None, False),
    (("anthropic", "google"), "google", None, True),
    (("anthropic", "google"), None, "google", True),
    (("anthropic", "google"), "google", "anthropic", False),
    (("google",), "simulator", None, False),
    # The editor's provider does not count without a key, or where it is none.
    (("google",), None, "anthropic", True),
    (("anthropic",), None, "google", False),
    (("google",), None, "nobody", True),
    ((), None, None, False),
]
KEYS_OF = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "google": "GEMINI_API_KEY",
    "openai-compatible": "THINKLSP_COMPATIBLE_BASE_URL",
}


def user_with(keyed: tuple[str, ...], own: str | None, toml: str = "", folder: Path | None = None, **more: str) -> Any:
    """Return the settings of a user with keys for these providers. `own` is the user's provider."""
    provider = {} if own is None else {"THINKLSP_PROVIDER": own}
    return user(toml, folder, **{KEYS_OF[name]: "x" for name in keyed}, **provider, **more)


@pytest.mark.parametrize(("keyed", "own", "asked", "counts"), SMALL_BUDGETS)
def test_small_budgets_are_for_gemini(keyed: tuple[str, ...], own: str | None, asked: Any, counts: bool) -> None:
    mine = user_with(keyed, own)
    assert set(list_keyed_providers(mine)) == set(keyed)
    first, said = EditorSettings().apply_configuration({"thinking.budgetTokens": 2048}, mine)
    assert said == ()
    for budget in (-1, 0, 1, 512, 1023):
        raw = {"thinking.budgetTokens": budget, **({} if asked is None else {"provider": asked})}
        second, sentences = first.apply_configuration(raw, mine)
        about = [sentence for sentence in sentences if "`provider` was" not in sentence]
        assert second.values["thinking.budgetTokens"] == (budget if counts else 2048)
        assert len(about) == (0 if counts else 1)
        if not counts:
            assert "`thinking.budgetTokens` was rejected: it must be at least 1024 " in about[0]
            assert about[0].endswith("The previous value is kept.")
    lowest, (sentence, *_) = first.apply_configuration({"provider": "google", "thinking.budgetTokens": -2}, mine)
    assert lowest.values["thinking.budgetTokens"] == 2048
    assert ("at least -1." in sentence) is ("google" in keyed)


# What an editor sends, and what is said of it.
UNKNOWN: list[tuple[Any, list[str]]] = [
    ({"efort": "low"}, ["Unknown setting `efort`. Did you mean `effort`?"]),
    ({"thinklsp": {"efort": "low"}}, ["Unknown setting `efort`. Did you mean `effort`?"]),
    ({"thinklsp.efort": "low"}, ["Unknown setting `efort`. Did you mean `effort`?"]),
    # A folder is trusted by a yes to its instructions, which no file of settings can give.
    ({"trust": True}, ["Unknown setting `trust`. `thinklsp config table` lists all settings."]),
    ({"temperature": 1}, ["Unknown setting `temperature`. `thinklsp config table` lists all settings."]),
    ({"thinking": {"dispaly": "off"}}, ["Unknown setting `thinking.dispaly`. Did you mean `thinking.display`?"]),
    ({"thinkin": {"mode": "off"}}, ["Unknown setting `thinkin.mode`. Did you mean `thinking.mode`?"]),
    ({"budgetTokens": 9}, ["Unknown setting `budgetTokens`. Did you mean `thinking.budgetTokens`?"]),
    ({"max_tokens": 9}, ["Unknown setting `max_tokens`. Did you mean `maxTokens`?"]),
    ({"thinklsp": {"other": {"deep": [SECRET]}}}, ["`other.deep`. `thinklsp config"]),
    ({"model": "m", "other": {"deep": SECRET}}, ["`other.deep`. `thinklsp config"]),
    ({"x`\u202e": SECRET}, ["Unknown setting `x??`. `thinklsp"]),
    # Of the editor's own side, or of another server.
    ({"thinklsp": {"ui": {"server": {"path": "x"}}, "trace": {"server": "off"}, "model": "m"}}, []),
    ({"pylsp": {"plugins": {"efort": 1}}, "gopls.efort": 1}, []),
    (
        {"thinklsp": {"model": "m"}, "pylsp": {"plugins": {"proxy": "x"}}, "http.proxy": "x", "gopls": {"token": "x"}},
        [],
    ),
    ({"thinklsp": {"model": "m"}, "efort": 1}, []),
    ({"efort": None}, []),
]


@pytest.mark.parametrize(("raw", "said"), UNKNOWN)
def test_unknown_editor_key_is_reported_once_with_hint(raw: Any, said: list[str]) -> None:
    made, sentences = EditorSettings().apply_configuration(raw)
    assert len(sentences) == len(said)
    assert all(words in sentence for words, sentence in zip(said, sentences, strict=True))
    assert made.unknown_sentences == sentences
    assert SECRET not in f"{made!r}{sentences}"
    again, silence = made.apply_configuration(raw)
    assert (again.unknown_sentences, silence) == (sentences, ())


def test_thousands_of_unknown_keys_are_a_few_sentences() -> None:
    """Settings may come from an opened repository."""
    raw = {f"{'k' * 500}{number}": {"x": 1} for number in range(20_000)} | {"model": "m"}
    _, sentences = EditorSettings().apply_configuration(raw)
    assert len(sentences) == 9
    assert max(map(len, sentences)) < 200
    assert sentences[-1] == "19992 more settings are unknown."


VARIABLES: list[tuple[str, str | None]] = [
    ("THINKLSP_MAXTOKENS", "`THINKLSP_MAX_TOKENS`"),
    ("THINKLSP_MODLE", "`THINKLSP_MODEL`"),
    ("THINKLSP_THINKINGMODE", "`THINKLSP_THINKING_MODE`"),
    ("THINKLSP_XYZ", "lists all settings"),
    *((f"THINKLSP_{name}", None) for name in ("CONFIG", "STATE_DIR", "ADMIN_CONFIG", "STORE_URL", "LOG_LEVEL")),
    ("THINKLSP_COMPATIBLE_API_KEY", None),
    ("THINKLSP_EFFORT_BY_ACTION_FIX", None),
    ("THINKLSP_MY_KEY", None),
    ("OTHER_MAXTOKENS", None),
]


@pytest.mark.parametrize(("name", "meant"), VARIABLES)
def test_an_unknown_variable_is_named_with_the_nearest(tmp_path: Path, name: str, meant: str | None) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[providers.openai]\napi_key_env = "THINKLSP_MY_KEY"')
    valid = {"THINKLSP_EFFORT_BY_ACTION_FIX": "low", "THINKLSP_LOG_LEVEL": "error"}
    valid |= {"THINKLSP_STATE_DIR": "/x", "THINKLSP_ADMIN_CONFIG": "/x"}
    value = valid.get(name, "a-value")
    problems = load_user_settings({name: value} | {"THINKLSP_CONFIG": str(config)}).problems
    assert len(problems) == (0 if meant is None else 1)
    for problem in problems:
        assert problem.startswith(f"Unknown setting `{name}` in the environment. ")
        assert meant is not None
        assert meant in problem
        assert "a-value" not in problem


POWER: list[Any] = [
    "base_url", "baseUrl", "BASE-URL", "anthropic.base_url", "providers.anthropic.baseUrl", "openai.apiKey", "api_key",
    "proxy", "caBundle", "ca_bundle", "headers", "commands.enabled", "permissions", "mcp.servers", "mcpServers",
    "sandbox", "log.level", "logLevel", "extraRoots", "network.proxy", "a.b.c.token", "thinking.apiKey",
    "workspace.allow_home", "models", "ANTHROPIC_API_KEY", "openaiApiKey", "THINKLSP_COMPATIBLE_BASE_URL",
    "myAuthToken", "env", "env.PATH", "environment", "roots", "a.b.c.d.e.f.g.h.i.j.k.l.baseUrl",
]  # fmt: skip


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("dotted", [True, False])
@pytest.mark.parametrize("key", POWER)
def test_restricted_editor_key_is_ignored_and_reported_once(key: str, dotted: bool, outer: bool) -> None:
    raw: Any = SECRET
    if dotted:
        raw = {key: raw}
    else:
        for part in reversed(key.split(".")):
            raw = {part: raw}
    raw = {"model": "m"} | raw
    first, sentences = EditorSettings().apply_configuration({"thinklsp": raw} if outer else raw)
    [sentence] = sentences
    assert any(part in sentence for part in key.split("."))
    assert SECRET not in sentence
    assert dict(first.values) == {"model": "m"}
    again, silence = first.apply_configuration(raw)
    assert silence == ()
    assert again.apply_configuration(raw | {"secret": SECRET})[1] != ()


IN_ARRAYS: list[tuple[Any, str]] = [
    ({"x": [{"base_url": SECRET}, {"base_url": SECRET}]}, "x[].base_url"),
    ({"x": [[1, [{"y": {"apiKey": SECRET}}]]]}, "x[][][].y.apiKey"),
    ({"x": [{"headers": [{"name": SECRET}]}]}, "x[].headers"),
    ({"actions": {"disabled": ["fix", {"proxy": SECRET}]}}, "actions.disabled[].proxy"),
    ({"thinking": [{"mode": "manual", "token": SECRET}]}, "thinking[].token"),
    ({"effort": {"token": SECRET}}, "effort.token"),
    ({"x" * 99: [{"baseUrl": SECRET}]}, "x[].baseUrl"),
]


@pytest.mark.parametrize(("raw", "name"), IN_ARRAYS)
def test_power_inside_of_arrays_and_of_other_values_is_told(raw: Any, name: str) -> None:
    made, sentences = EditorSettings().apply_configuration({"thinklsp": raw})
    [told] = [sentence for sentence in sentences if "were ignored" in sentence]
    assert f"{name}. Set them" in told
    assert SECRET not in "".join(sentences)
    assert made.values == {}
    assert [said for said in made.apply_configuration(raw)[1] if "were ignored" in said] == []


def test_power_of_other_servers_is_no_business_of_ours() -> None:
    raw = {"thinklsp": {"model": "m"}, "pylsp": {"plugins": {"proxy": "x"}}, "http.proxy": "x", "gopls": {"token": "x"}}
    assert EditorSettings().apply_configuration(raw)[1] == ()
    assert EditorSettings().apply_configuration(raw | {"baseUrl": "x"})[1] != ()


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS, "thinklsp", "thinking", "baseUrl", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_json, _json)
def test_any_json_gives_settings_and_sentences(first: Any, second: Any) -> None:
    one, _ = EditorSettings().apply_configuration(first)
    two, sentences = one.apply_configuration(second)
    assert all(sentence.endswith((".", "?")) for sentence in sentences)
    assert isinstance(resolve_settings(user(), two).settings, Settings)


ENVIRONMENT: list[tuple[str, str, str, Any]] = [
    ("THINKLSP_THINKING_MODE", "manual", "thinking.mode", "manual"),
    ("THINKLSP_THINKING_BUDGET_TOKENS", "4096", "thinking.budgetTokens", 4096),
    ("THINKLSP_THINKING_SUMMARY", "concise", "thinking.summary", "concise"),
    ("THINKLSP_MAX_STEPS", "7", "maxSteps", 7),
    ("THINKLSP_MAX_TOKENS", "auto", "maxTokens", "auto"),
    ("THINKLSP_MAX_TOKENS", "8000", "maxTokens", 8000),
    ("THINKLSP_MODEL", "123", "model", "123"),
    ("THINKLSP_MODEL", "claude", "model", "claude"),
    ("THINKLSP_MODEL", "Auto", "model", None),
    ("THINKLSP_THINKING_MODE", "ultra", "effort", "max"),
    ("THINKLSP_THINKING_MODE", "normal", "thinking.mode", "normal"),
    ("THINKLSP_BUDGET_USD_PER_TURN", "0.5", "budget.usdPerTurn", 0.5),
    ("THINKLSP_COMPACTION_AUTO", "false", "compaction.auto", False),
    ("THINKLSP_COMPACTION_THINKING_AFTER", "off", "compaction.thinkingAfter", "off"),
    ("THINKLSP_ACTIONS_DISABLED", "fix, edit", "actions.disabled", ("fix", "edit")),
    ("THINKLSP_ACTIONS_DISABLED", '["fix"]', "actions.disabled", ("fix",)),
    ("THINKLSP_EFFORT_BY_ACTION", '{"fix": "high"}', "effortByAction", {"fix": "high"}),
    ("THINKLSP_CHAT_FILE_SUFFIX", ".ai.md", "chat.fileSuffix", ".ai.md"),
    ("THINKLSP_EFFORT", "", "effort", "auto"),
]


@pytest.mark.parametrize(("variable", "text", "key", "value"), ENVIRONMENT)
def test_any_setting_can_come_from_the_environment(variable: str, text: str, key: str, value: Any) -> None:
    made = user(**{variable: text})
    assert made.problems == ()
    assert read_value(resolve_settings(made).settings, key) == value


LIMITS: list[tuple[str, str, str, str]] = [
    ("THINKLSP_MAX_STEPS", "0", "maxSteps", "at least 1."),
    ("THINKLSP_MAX_TOKENS", "500", "maxTokens", "at least 1024 or one of 'auto'."),
    ("THINKLSP_COMPACTION_AUTO", "1", "compaction.auto", "true or false."),
    ("THINKLSP_LOG_LEVEL", "loud", "log.level", "one of debug, info, warning, error. Change THINKLSP_LOG_LEVEL."),
]


@pytest.mark.parametrize(("variable", "text", "key", "limit"), LIMITS)
def test_wrong_variable_is_left_out_and_told_with_its_limit(variable: str, text: str, key: str, limit: str) -> None:
    made = user(**{variable: text}, THINKLSP_MODEL="m")
    [problem] = made.problems
    assert f"The setting `{key}` was rejected: it must be {limit}" in problem
    settings = resolve_settings(made).settings
    assert settings.model == "m"
    assert key not in CONTRACT or read_value(settings, key) == CONTRACT[key][0]


def test_a_long_list_is_checked_until_its_first_fault() -> None:
    with pytest.raises(ValidationError) as refused:
        build_settings({"actions.disabled": [0] * 100})
    assert refused.value.error_count() == 1
