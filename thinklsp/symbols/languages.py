"""Which language a file is written in: by its name, by its first line, and where names are shared by its text;
where these say nothing by what the editor calls it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_SHEBANG = re.compile(
    r"\ufeff?#![ \t]*(?:\S*/)?env(?:[ \t]+-\S+)*[ \t]+(?:\S*/)?([^\s/]+)|\ufeff?#![ \t]*(?:\S*/)?([^\s/]+)"
)
# How much of a text is looked at to choose between two languages.
_LOOK = 50_000


@dataclass(frozen=True, slots=True)
class Language:
    """`name` is that of its grammar. `queries`: the files that say together what its definitions are."""

    name: str
    family: str = ""
    queries: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    indented: bool = False
    contents: tuple[tuple[str, re.Pattern[str]], ...] = ()


def language_of(path: str, text: str, language_id: str = "") -> Language | None:
    """`path`: any name or URI that ends in the file's name. None where no grammar here reads the file.

    `language_id`: what the editor calls the language of an open document. It decides only where name and first line
    say nothing: they are the same for every editor, and whether the file is open or not.
    """
    name = path.replace("\\", "/").rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name.lstrip(".") else ""
    for language in languages().values():
        if name in language.files or (extension and extension in language.extensions):
            return language
        if any(of == extension and pattern.search(text, 0, _LOOK) for of, pattern in language.contents):
            return language
    return (None if extension else _by_first_line(text)) or _by_id(language_id.casefold())


def _by_first_line(text: str) -> Language | None:
    found = _SHEBANG.match(text, 0, 200)
    if found is None:
        return None
    interpreter = found[1] or found[2]
    plain = re.sub(r"[\d.]+$", "", interpreter)
    return next(
        (language for language in languages().values() if {interpreter, plain} & set(language.interpreters)), None
    )


def _by_id(language_id: str) -> Language | None:
    return next((language for language in languages().values() if language_id in (language.name, *language.ids)), None)


@cache
def languages() -> Mapping[str, Language]:
    rows = tomllib.loads(files(__package__).joinpath("languages.toml").read_text("utf-8"))
    return {name: _language(name, row) for name, row in rows.items()}


def _language(name: str, row: Mapping[str, Any]) -> Language:
    return Language(
        name,
        family=row.get("family", name),
        queries=tuple(row.get("queries", (name,))),
        extensions=tuple(row.get("extensions", ())),
        files=tuple(row.get("files", ())),
        interpreters=tuple(row.get("interpreters", ())),
        ids=tuple(row.get("ids", ())),
        indented=row.get("indented", False),
        contents=tuple((of, re.compile(pattern, re.MULTILINE)) for of, pattern in row.get("contents", {}).items()),
    )
