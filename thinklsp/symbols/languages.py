"""Detection of a file's language from its name, its first line, its text and the editor's language id.

The text distinguishes languages with the same file extension. The language id is used only as a last resort.
"""

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
# The maximum number of characters that are searched to distinguish two languages.
_MAX_SEARCHED_CHARACTERS = 50_000


@dataclass(frozen=True, slots=True)
class Language:
    """A language with a grammar.

    `grammar` is the module and the function that returns the grammar, `queries` the files with queries for definitions.
    """

    name: str
    grammar: str
    family: str = ""
    queries: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    indented: bool = False
    contents: tuple[tuple[str, re.Pattern[str]], ...] = ()


def detect_language(path: str, text: str, language_id: str = "") -> Language | None:
    """Return the language of a file, or None if there is no grammar for it.

    `path` is a path or URI that ends with the file name. `language_id` is the id that the editor reports for an open
    document. It is used only if the file name and the text do not determine the language.
    """
    name = path.replace("\\", "/").rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name.lstrip(".") else ""
    for language in load_languages().values():
        if name in language.files or (extension and extension in language.extensions):
            return language
        if any(
            of == extension and pattern.search(text, 0, _MAX_SEARCHED_CHARACTERS) for of, pattern in language.contents
        ):
            return language
    return (None if extension else _find_by_first_line(text)) or _find_by_id(language_id.casefold())


def _find_by_first_line(text: str) -> Language | None:
    match = _SHEBANG.match(text, 0, 200)
    if match is None:
        return None
    interpreter = match[1] or match[2]
    plain = re.sub(r"[\d.]+$", "", interpreter)
    return next(
        (language for language in load_languages().values() if {interpreter, plain} & set(language.interpreters)), None
    )


def _find_by_id(language_id: str) -> Language | None:
    return next(
        (language for language in load_languages().values() if language_id in (language.name, *language.ids)), None
    )


@cache
def load_languages() -> Mapping[str, Language]:
    rows = tomllib.loads(files(__package__).joinpath("languages.toml").read_text("utf-8"))
    return {name: _parse_language(name, row) for name, row in rows.items()}


def _parse_language(name: str, row: Mapping[str, Any]) -> Language:
    facts: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    patterns = row.get("contents", {}).items()
    facts["contents"] = tuple((of, re.compile(pattern, re.MULTILINE)) for of, pattern in patterns)
    defaults = {"grammar": f"tree_sitter_{name}:language", "family": name, "queries": (name,)}
    return Language(name, **(defaults | facts))
