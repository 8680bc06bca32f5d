"""The table of settings: in the README as the program prints it, and readable for every kind of value."""

from pathlib import Path

import pytest

from thinklsp.cli.config import _values, settings_table

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- settings: made by `thinklsp config table` -->\n", "<!-- end of settings -->"


def test_the_readme_holds_the_table_that_the_program_prints():
    """After a change of settings: put the output of `python -m thinklsp config table` between the two marks."""
    text = README.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.partition(BEGIN)[2].partition(END)[0] == settings_table() + "\n"


VALUES = {
    "an empty text": ({"type": "string", "default": ""}, "none, a text"),
    "a long text": (
        {"type": "string", "default": "x", "maxLength": 2000},
        "`x`, a text of at most 2,000 characters",
    ),
    "no text": ({"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}], "default": None},
        "none, a text of at most 9 characters"),
    "a pattern": ({"type": "string", "default": ".a", "pattern": "^.a$", "maxLength": 9}, "`.a`, a text like `.a`"),
    "a pattern without an example": ({"type": "string", "default": "", "pattern": "^.a$"}, "none, a text"),
    "a switch": ({"type": "boolean", "default": True}, "`true`, `false`"),
    "a number": ({"type": "integer", "default": 1, "minimum": 1, "exclusiveMaximum": 2000},
        "`1`, a whole number at least 1 and less than 2,000"),
    "a list": ({"type": "array", "default": []}, "`[]`, a list of texts"),
}  # fmt: skip


@pytest.mark.parametrize(("part", "shown"), VALUES.values(), ids=VALUES)
def test_values_are_shown_for_people(part, shown):
    assert _values(part) == shown
