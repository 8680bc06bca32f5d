"""Front matter: the subset of YAML that skills need, without tags and anchors, in linear time."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.markdown import MAX_FRONT_MATTER_BYTES, FrontMatterError, parse_front_matter

READ: dict[str, tuple[str, dict[str, str | None]]] = {
    "empty": ("", {}),
    "plain": ("name: a-b\ndescription: Does it.", {"name": "a-b", "description": "Does it."}),
    "strings only": ("a: true\nb: 1.0\nc: ~\nd: 2026-01-01", {"a": "true", "b": "1.0", "c": "~", "d": "2026-01-01"}),
    "no value": ("a:\nb: x", {"a": "", "b": "x"}),
    "comments": ("# First\na: x # y\nb: x#y\n  # Last", {"a": "x", "b": "x#y"}),
    "a colon in a value": ("a: Use when: asked.", {"a": "Use when: asked."}),
    "an address": ("a: https://example.org/x", {"a": "https://example.org/x"}),
    "spaces around": ("a  :   x  \n", {"a": "x"}),
    "double quotes": (r'a: "x: \"y\" # \\ \u00e9\n" # z', {"a": 'x: "y" # \\ é\n'}),
    "single quotes": ("a: 'it''s # x' # z", {"a": "it's # x"}),
    "empty quotes": ("a: \"\"\nb: ''", {"a": "", "b": ""}),
    "quotes over lines": ('a: "one\n  two"\nb: x', {"a": "one two", "b": "x"}),
    "quotes below": ("a:\n  'one\n  two'", {"a": "one two"}),
    "plain over lines": ("a: one\n  two\n\n  three\nb: x", {"a": "one two\nthree", "b": "x"}),
    "plain below": ("a:\n  one\n  two", {"a": "one two"}),
    "a folded block": ("a: >-\n  one\n  two\n\n  three: x\nb: y", {"a": "one two\nthree: x", "b": "y"}),
    "a literal block": ("a: |\n  one\n    two # x\nb: y", {"a": "one\n  two # x", "b": "y"}),
    "an empty block": ("a: |\nb: y", {"a": "", "b": "y"}),
    "a map": ("m:\n  a: x\n  b:\n    c: y\nn: z", {"m": None, "n": "z"}),
    "lists": ("a:\n  - x\n  - y\nb:\n- x\n-\nc: [x, y]\nd: z", {"a": None, "b": None, "c": None, "d": "z"}),
    "a flow map": ("a: {b: c}", {"a": None}),
    "anchors and tags": ("a: &x y\nb: *x\nc: !!python/object:os.system z", {"a": None, "b": None, "c": None}),
}


@pytest.mark.parametrize(("text", "values"), READ.values(), ids=READ)
def test_values(text: str, values: dict[str, str | None]) -> None:
    found = parse_front_matter(f"---\n{text}\n---\n\n# Body\n---\n")
    assert found.values == values
    assert found.body == "# Body\n---\n"


REFUSED: dict[str, tuple[str, str]] = {
    "nothing": ("", "does not begin with front matter"),
    "no fence": ("# Title\n---\n", "does not begin with front matter"),
    "an indented fence": (" ---\na: x\n---\n", "does not begin with front matter"),
    "a fence alone": ("---", "does not begin with front matter"),
    "no end": ("---\na: x\n", "does not end with a line `---`"),
    "no key": ("---\na: x\njust words\n---\n", "Line 3 of the file is not `key: value`"),
    "no space": ("---\na:x\n---\n", "Line 2 of the file"),
    "a list at the top": ("---\n- a\n---\n", "Line 2 of the file"),
    "twice": ("---\na: x\na: y\n---\n", "contains `a` twice"),
    "open double quotes": ('---\na: "x\nb: y\n---\n', "does not end with it"),
    "text after quotes": ("---\na: 'x' y\n---\n", "does not end with it"),
    "an unknown escape": ('---\na: "\\q"\n---\n', "unknown escape"),
    "half a character": ('---\na: "\\ud800"\n---\n', "unknown escape"),
    "a loose block": ("---\na: |\n    x\n  y\n---\n", "indented less than its first line"),
    "too large": (f"---\na: {'x' * MAX_FRONT_MATTER_BYTES}\n---\n", "larger than 4,096 bytes"),
    "too large in bytes": (f"---\na: {'é' * 2048}\n---\n", "larger than 4,096 bytes"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(FrontMatterError) as caught:
        parse_front_matter(text)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


_PIECES = st.sampled_from(
    ["---", "\n", "a: ", "b:", "  ", "- ", '"', "'", "\\", "|", ">", "#", "[", "&x", "!!", "\t", "é", "\x00", "\u2028"]
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(_PIECES | st.text(max_size=5), max_size=60).map("".join), st.booleans())
def test_never_raises_anything_else(text: str, fenced: bool) -> None:
    try:
        found = parse_front_matter(f"---\n{text}\n---\nBody" if fenced else text)
    except FrontMatterError:
        return
    assert all(value is None or isinstance(value, str) for value in found.values.values())


MEGABYTE = 1 << 20
WORST = {
    "no end": "---\n" + "a: x\n" * (MEGABYTE // 5),
    "one line": "---\n" + "-" * MEGABYTE,
    "spaces": "---\na:" + " " * MEGABYTE + "x\n---\n",
    "line feeds": "---" + "\n" * MEGABYTE,
    "quotes": '---\na: "' + '\\"' * (MEGABYTE // 2),
    "hashes": "---\na: " + " #" * (MEGABYTE // 2) + "\n---\n",
    "a long body": "---\na: x\n---\n" + "---\n" * (MEGABYTE // 4),
    "the worst at the limit": "---\na: '" + "''" * 2_000 + "'\n---\n" + " " * MEGABYTE,
}


@pytest.mark.timing
@pytest.mark.parametrize("text", WORST.values(), ids=WORST)
def test_a_megabyte_takes_no_time(text: str) -> None:
    begin = time.process_time()
    with suppress(FrontMatterError):
        parse_front_matter(text)
    assert time.process_time() - begin < 0.25
