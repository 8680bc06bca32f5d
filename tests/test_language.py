"""The sources speak plainly: the figures of `tests/language.toml`, and the rules that measure them."""

from __future__ import annotations

from functools import cache

import pytest

from tests.language import RULES, begins_with_fragment, begins_with_verb, measure
from tests.wording import collect_wordings, is_sentence


@cache
def measured() -> tuple[dict[str, float], list[str]]:
    return measure()


@pytest.mark.parametrize("bound", RULES["bounds"])
def test_language_figure_keeps_its_bound(bound: str) -> None:
    figures, worst = measured()
    kind, _, name = bound.partition("_")
    limit, figure = RULES["bounds"][bound], figures[name]
    kept = figure >= limit if kind == "min" else figure <= limit
    assert kept, (
        f"{name} is {figure:.1f}, its bound is {limit}; `python -m tests.language --worst 50` lists the places:\n"
        + ("\n".join(worst[:20]))
    )


@pytest.mark.parametrize(
    ("docstring", "verb", "fragment"),
    [
        ("Return the id of a session.", True, False),
        ("Parses one frame.", True, False),
        ("Carries on, if possible.", False, False),
        ("`initialize` answers at once.", True, False),
        ("What one model gets from now on.", False, True),
        ("Of a whole file, or of lines.", False, True),
        ("The same for a folder.", False, True),
        ("The session store of one process.", False, False),
    ],
)
def test_docstring_beginning_is_judged(docstring: str, verb: bool, fragment: bool) -> None:
    assert (begins_with_verb(docstring), begins_with_fragment(docstring)) == (verb, fragment)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No edit is waiting to be applied.", True),
        ("{…} was not changed: {…}.", True),
        ("thinklsp.effort", False),
        ("SELECT id FROM sessions", False),
        (r"^(?:fix|edit) \w+", False),
    ],
)
def test_sentence_is_told_from_code(text: str, expected: bool) -> None:
    assert is_sentence(text) is expected


def test_wording_list_covers_server_and_plugins() -> None:
    wordings = collect_wordings()
    for place in ("thinklsp/lsp/", "thinklsp/cli/", "editors/vscode/package.json", "editors/neovim/", "editors/emacs/"):
        assert any(wording.path.startswith(place) for wording in wordings), place
