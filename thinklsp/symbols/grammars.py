"""Grammars, which are native modules of one package per language. Worker processes load them on first use."""

from __future__ import annotations

from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from thinklsp.symbols.languages import Language, load_languages

if TYPE_CHECKING:
    import tree_sitter


class GrammarUnavailable(Exception):
    """Raised if the grammar of a language is not installed, cannot be loaded or is too old or new for tree-sitter."""


@cache
def load_grammar(language: Language) -> tree_sitter.Language:
    """Load the grammar of a language. Raises GrammarUnavailable."""
    try:
        import tree_sitter  # noqa: PLC0415 - native code, loaded on first use

        return tree_sitter.Language(resolve_name(language.grammar)())
    except Exception as error:
        raise GrammarUnavailable(language.name) from error


def find_unavailable_grammars() -> list[str]:
    """Return the packages of the grammars that cannot be loaded."""
    packages: dict[str, None] = {}
    for language in load_languages().values():
        try:
            load_grammar(language)
        except GrammarUnavailable:
            packages[language.grammar.partition(":")[0].replace("_", "-")] = None
    return list(packages)


def explain_missing_grammars() -> list[str]:
    """Return a sentence for the user about each grammar that cannot be loaded."""
    return [
        f"The grammar {package} cannot be loaded, so its files have no outline. Install the package `{package}`."
        for package in find_unavailable_grammars()
    ]
