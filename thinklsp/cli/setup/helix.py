"""Helix: the server beside the language's own ones in `languages.toml`, and its progress in `config.toml`.

Helix has no entry for all languages, and an entry replaces the built-in list of servers. So each language gets an entry
with the list that this Helix has built in, and thinklsp at its end.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from thinklsp.cli.setup.blocks import ConfigPlace
from thinklsp.cli.setup.machine import Machine
from thinklsp.cli.setup.steps import ConfigEdit, SetupSteps, insert, read_own_text, refuse_own_entry, remove
from thinklsp.core.errors import ThinkLspError

LANGUAGES = (
    "bash", "c", "c-sharp", "cpp", "go", "java", "javascript", "jsx", "lua", "markdown", "php", "python", "ruby",
    "rust", "tsx", "typescript",
)  # fmt: skip
_FEATURES = '["code-action", "workspace-command", "completion", "hover"]'
_PROGRESS = ("[editor.lsp]", "display-progress-messages = true")
_TIMEOUT_SECONDS = 20
_COLOR = re.compile(r"\x1b\[[\d;]*m")
_LIST = re.compile(r"^Configured language servers:.*\n(?P<rows>(?:[ \t].*\n)*)", re.MULTILINE)
_SERVER = re.compile(r"^\s+\S+ ([^\s:]+)", re.MULTILINE)


def build_removals(machine: Machine) -> tuple[ConfigEdit, ...]:
    return remove(_find_place(machine, "languages.toml")), remove(_find_place(machine, "config.toml"))


def build_steps(machine: Machine, program: str) -> SetupSteps:
    """Raises ThinkLspError if a file is not valid TOML, or if Helix does not list its servers."""
    languages, config = _find_place(machine, "languages.toml"), _find_place(machine, "config.toml")
    own = _parse(languages)
    if "thinklsp" in own.get("language-server", {}):
        return refuse_own_entry(languages.path)
    taken = {each.get("name") for each in own.get("language", []) if "language-servers" in each}
    lines = [*_build_server(machine), *_build_languages(machine, program, (n for n in LANGUAGES if n not in taken))]
    _parse(languages, lines)
    edits, notes = [insert(languages, lines)], []
    if kept := [name for name in LANGUAGES if name in taken]:
        notes.append(
            f'{languages.path} has lists of your own for {", ".join(kept)}: add "thinklsp" to `language-servers` there.'
        )
    if "display-progress-messages" not in _parse(config).get("editor", {}).get("lsp", {}):
        try:
            _parse(config, _PROGRESS)
            edits.append(insert(config, _PROGRESS))
        except ThinkLspError:
            notes.append(f"To see the progress, add `{_PROGRESS[1]}` to `{_PROGRESS[0]}` in {config.path}.")
    return SetupSteps(tuple(edits), notes=tuple(notes))


def _find_place(machine: Machine, name: str) -> ConfigPlace:
    return ConfigPlace(machine.config / "helix" / name, machine.config, "#")


def _parse(place: ConfigPlace, lines: Iterable[str] = ()) -> Any:
    """Return the user's part of the file as a value, with the lines at its end. Raises ThinkLspError."""
    try:
        return tomllib.loads("\n".join([read_own_text(place), *lines]))
    except tomllib.TOMLDecodeError as error:
        raise ThinkLspError(
            f"{place.path} is not valid TOML with the lines for thinklsp, so nothing was changed: {error}. "
            "Correct the file, or write inline tables as tables of their own."
            if lines
            else f"{place.path} is not valid TOML, so nothing was changed: {error}. Correct the file."
        ) from None


def _build_server(machine: Machine) -> Iterator[str]:
    yield "[language-server.thinklsp]"
    yield f"command = {_quote(machine.server[0])}"
    if machine.server[1:]:
        yield f"args = [{', '.join(map(_quote, machine.server[1:]))}]"


def _build_languages(machine: Machine, program: str, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        servers = [*map(_quote, _list_servers(machine, program, name))]
        servers.append(f'{{ name = "thinklsp", only-features = {_FEATURES} }}')
        yield from ("", "[[language]]", f"name = {_quote(name)}", f"language-servers = [{', '.join(servers)}]")


def _list_servers(machine: Machine, program: str, language: str) -> list[str]:
    """Return the servers that Helix itself has for a language, without the user's configuration.

    Raises ThinkLspError.
    """
    with tempfile.TemporaryDirectory(prefix="thinklsp-") as empty:
        environ = {**machine.environ, "XDG_CONFIG_HOME": empty, "XDG_CACHE_HOME": empty}
        try:
            done = subprocess.run(
                [program, "--health", language],
                cwd=empty, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                timeout=_TIMEOUT_SECONDS,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ThinkLspError(f"Cannot run {program}: {error}.") from None
    found = _LIST.search(_COLOR.sub("", done.stdout.decode("utf-8", "replace")))
    if found is None:
        raise ThinkLspError(
            f"`{program} --health {language}` lists no language servers. Helix 23.10 or newer is needed."
        )
    return _SERVER.findall(found["rows"])


def _quote(text: str) -> str:
    """Return a TOML string; JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False)
