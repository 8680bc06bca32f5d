"""The user's file is read again when it has changed: what follows at the next turn, and what a running turn keeps."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.engine.test_engine import PLAIN, play, run, spec
from tests.settings.test_sources import user
from tests.support.scripted_model import says
from tests.support.shadowing import make_runner
from thinklsp.core.errors import SettingsError
from thinklsp.engine import Engine
from thinklsp.engine.diagnosis import build_report
from thinklsp.settings.access import (
    find_key_source,
    list_keyed_providers,
    read_external_key,
    resolve_access,
)

KEY = "sk-canary-0123456789-abcdefghijkl"
MODEL = "claude-opus-4-6"


class Mine:
    """A user's file and an engine that reads it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config.toml"
        self.write("")
        environment = {"THINKLSP_CONFIG": str(self.path), "ANTHROPIC_API_KEY": KEY, "KEY_OF_MINE": "other"}
        self.engine = Engine(environment, runner_factory=make_runner)

    def write(self, text: str, mode: int = 0o600) -> None:
        # As editors do: another file takes its place.
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        fresh.chmod(mode)
        os.replace(fresh, self.path)

    async def notices(self) -> list[str]:
        """What one more turn tells."""
        turn = await self.engine.start_turn(spec(), PLAIN, {})
        play(turn, says("Yes."))
        await run(turn)
        return turn.output.notices

    @property
    def effort(self) -> str:
        return self.engine.resolve_settings(PLAIN).settings.effort


@pytest.fixture
async def mine(tmp_path: Path) -> AsyncIterator[Mine]:
    made = Mine(tmp_path)
    yield made
    await made.engine.aclose()


async def test_a_changed_file_counts_from_the_next_turn(mine: Mine) -> None:
    for effort in ("low", "high"):
        mine.write(f'effort = "{effort}"')
        assert (await mine.notices(), mine.effort) == ([], effort)
    mine.path.unlink()
    assert (await mine.notices(), mine.effort) == ([], "auto")


async def test_file_rewritten_with_same_size_is_noticed(mine: Mine) -> None:
    mine.write('model = "claude-opus-4-6"')
    assert await mine.notices() == []
    mine.path.write_text('model = "claude-opus-4-5"')
    turn = await mine.engine.start_turn(spec(), PLAIN, {})
    turn.release()
    assert turn.config.model.id == "claude-opus-4-5"


BROKEN = {
    "no TOML": ("effort = ", 0o600),
    "open to others": ("", 0o666),
    "a wrong model": ("[models.openai.x]\na = 1", 0o600),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_broken_file_keeps_settings_and_is_reported_once(mine: Mine, case: str) -> None:
    mine.write('effort = "low"')
    assert await mine.notices() == []
    mine.write(*BROKEN[case])
    [said] = await mine.notices()
    assert said.endswith("Your previous settings stay in effect.")
    assert (await mine.notices(), mine.effort) == ([], "low")
    assert said in (await build_report(mine.engine, PLAIN, {}, probe_seconds=0))["problems"]
    mine.write('effort = "high"')
    assert (await mine.notices(), mine.effort) == ([], "high")
    assert said not in (await build_report(mine.engine, PLAIN, {}, probe_seconds=0))["problems"]


async def test_what_is_wrong_in_a_changed_file_is_told_once(mine: Mine) -> None:
    mine.write('efort = "low"')
    [said] = await mine.notices()
    assert "`efort`" in said
    mine.write('efort = "low"\neffort = "low"')
    assert (await mine.notices(), mine.effort) == ([], "low")


async def test_changed_user_file_applies_to_the_next_turn(mine: Mine) -> None:
    running = await mine.engine.start_turn(spec(), PLAIN, {"model": MODEL})
    text = '[providers.anthropic]\nbase_url = "http://127.0.0.1:9"\napi_key_env = "KEY_OF_MINE"\n'
    mine.write(f'{text}[network]\nproxy = "http://127.0.0.1:8"\n[commands]\nenabled = true\n[log]\nlevel = "info"')
    before = mine.engine.transport
    following = await mine.engine.start_turn(spec(), PLAIN, {"model": MODEL})
    access = await mine.engine.connections.resolve_access("anthropic")
    assert access is not None
    assert (access.base_url, access.api_key) == ("http://127.0.0.1:9", "other")
    assert mine.engine.user.file.commands.enabled
    assert mine.engine.transport is not before
    assert logging.getLogger("thinklsp").level == logging.INFO
    first, second = await running.connect(()), await following.connect(())
    assert first is not second
    assert running.config.tools != following.config.tools
    running.release()
    following.release()
    mine.write("")
    assert await mine.notices() == []
    assert logging.getLogger("thinklsp").level == logging.WARNING


async def test_a_file_that_is_just_being_written_is_waited_for(mine: Mine) -> None:
    """Most editors empty the file first."""
    mine.write('effort = "low"')
    assert await mine.notices() == []
    mine.path.write_text("")
    looking = asyncio.ensure_future(mine.engine.config.refresh())
    for _ in range(3):
        await asyncio.sleep(0)
    mine.path.write_text("effort = ")
    [said] = await looking
    assert (mine.effort, "stay in effect" in said) == ("low", True)


class Keyring(ModuleType):
    """Stands in the place of the optional package. `held`: an entry and its key."""

    def __init__(self, held: dict[tuple[str, str], str] | Exception | None) -> None:
        super().__init__("keyring")
        self.held = held
        self.asked: list[threading.Thread] = []
        self.forever = threading.Event()

    def get_password(self, service: str, name: str) -> str | None:
        self.asked.append(threading.current_thread())
        if isinstance(self.held, Exception):
            raise self.held
        if self.held is None:
            self.forever.wait()
            return None
        return self.held.get((service, name))


@pytest.fixture
def installed() -> Iterator[Any]:
    """Installs a package `keyring` for the time of the test."""
    former = sys.modules.get("keyring")

    def install(keyring: Keyring | None) -> Keyring | None:
        sys.modules["keyring"] = keyring  # type: ignore[assignment]  # None: as if it were not installed.
        return keyring

    yield install
    sys.modules.pop("keyring")
    if former is not None:
        sys.modules["keyring"] = former


ENTRY = '[providers.anthropic]\napi_key_keyring = "work/me@example.org"\napi_key_command = ["false"]'


def test_keyring_is_used_after_the_environment(tmp_path: Path) -> None:
    made = user(ENTRY, tmp_path)
    assert "anthropic" in list_keyed_providers(made)
    assert find_key_source("anthropic", made) == "work/me@example.org"
    access = resolve_access("anthropic", made, external_key=KEY)
    assert (access.api_key, access.source) == (KEY, "the keyring entry work/me@example.org in the user file")
    assert find_key_source("anthropic", user(ENTRY, tmp_path, ANTHROPIC_API_KEY="k")) is None
    with pytest.raises(SettingsError, match="api_key_keyring"):
        user('[providers.anthropic]\napi_key_keyring = "no-user"', tmp_path)


async def test_the_keyring_is_read_in_a_thread_and_once(tmp_path: Path, installed: Any) -> None:
    keyring = installed(Keyring({("work", "me@example.org"): f"{KEY}\n"}))
    (tmp_path / "config.toml").write_text(ENTRY)
    engine = Engine({"THINKLSP_CONFIG": str(tmp_path / "config.toml")})
    turns = [await engine.start_turn(spec(), PLAIN, {}) for _ in range(2)]
    assert keyring.asked == []
    await asyncio.gather(*(turn.connect(()) for turn in turns))
    assert [thread is threading.main_thread() for thread in keyring.asked] == [False]
    found = await engine.connections.resolve_access("anthropic")
    assert found is not None
    assert found.api_key == KEY
    told = await build_report(engine, PLAIN, {}, probe_seconds=0)
    assert told["model"]["keySource"] == "the keyring entry work/me@example.org in the user file"
    assert KEY not in str(told)
    await engine.aclose()


FAILING: dict[str, tuple[Keyring | None, str]] = {
    "not installed": (None, f"Run {sys.executable} -m pip install 'keyring>=25'."),
    "no entry": (Keyring({}), "no entry work/me for anthropic. Run "),
    "locked": (Keyring(RuntimeError(KEY)), "cannot be used for the key of anthropic (RuntimeError)."),
    "no answer": (Keyring(None), "did not respond within 0 seconds. Unlock it"),
}


@pytest.mark.parametrize("case", FAILING)
async def test_a_keyring_that_gives_no_key_is_told(installed: Any, case: str) -> None:
    """One sentence with what to do; never the name of a package on an index that is not ours."""
    keyring, words = FAILING[case]
    installed(keyring)
    with pytest.raises(SettingsError) as failed:
        await read_external_key("anthropic", "work/me", {}, seconds=0.2 if case == "no answer" else 60)
    assert words in str(failed.value)
    assert KEY not in str(failed.value)
    assert "install thinklsp" not in str(failed.value)
    if keyring is not None:
        keyring.forever.set()
