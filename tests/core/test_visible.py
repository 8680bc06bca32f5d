"""Invisible characters are escaped, and visible text is unchanged."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.text_safety import (
    escape_invisible,
    find_invisible,
    format_path,
    format_size,
    remove_invisible,
    truncate,
    unescape_invisible,
)

SHOWN = {
    "plain\ttext\n": "plain\ttext\n",
    "naïve café 日本語 עברית 🙂": "naïve café 日本語 עברית 🙂",
    "a\u202eb\u2066c": "a<U+202E>b<U+2066>c",
    "\U000e0041\U000e0042": "<U+E0041><U+E0042>",
    "zero\u200bwidth\u00adsoft": "zero<U+200B>width<U+00AD>soft",
    "\x1b[31mred\r\x07": "<U+001B>[31mred<U+000D><U+0007>",
    "line\u2028sep\x85next": "line<U+2028>sep<U+0085>next",
    "\ufeffmark": "<U+FEFF>mark",
    "half\ud800": "half<U+D800>",
    "hangul\u3164filler": "hangul<U+3164>filler",
    "👩\u200d💻 ❤\ufe0f 👩🏽\u200d🚀": "👩\u200d💻 ❤\ufe0f 👩🏽\u200d🚀",
    "a\u200db \u200d x\ufe0f": "a<U+200D>b <U+200D> x<U+FE0F>",
    "❤\ufe0f\u200d🔥 ❤\ufe0f\u200db": "❤\ufe0f\u200d🔥 ❤\ufe0f<U+200D>b",
    "❤\ufe0f\ufe0f": "❤\ufe0f<U+FE0F>",
    "\U000e0100\ufe01": "<U+E0100><U+FE01>",
    "nbsp\u00a0stays": "nbsp\u00a0stays",
}


@pytest.mark.parametrize("text", SHOWN)
def test_table(text):
    assert escape_invisible(text) == SHOWN[text]
    assert unescape_invisible(SHOWN[text]) == text


# Unicode's list of what may be left out when drawing, written down apart from the code under test.
IGNORABLE = [
    *range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5,
    *range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0x3164,
    *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0, *range(0xFFF0, 0xFFFC), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE1000), *range(0xD800, 0xE000),
]  # fmt: skip


def test_every_ignorable_code_point_is_spelled_out():
    assert [hex(code) for code in IGNORABLE if escape_invisible(f"a{chr(code)}b") != f"a<U+{code:04X}>b"] == []


@given(st.text())
def test_what_is_shown_can_be_seen(text):
    shown = escape_invisible(text)
    left = [char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert set(left) <= {"\n", "\t", "\u200d"}
    assert escape_invisible(shown) == shown
    shown.encode()
    if "<U+" not in text:
        assert unescape_invisible(shown) == text
        assert bool(find_invisible(text)) == (shown != text)


@given(st.text(), st.integers(100, 200))
def test_bounds_hold(text, limit):
    assert len(truncate(text * 30, limit)) <= limit
    assert truncate(text[:100], limit) == text[:100]


@given(st.text(min_size=1))
def test_names_stay_on_their_line(name):
    assert "\n" not in format_path(name)
    assert len(escape_invisible(format_path(name)).splitlines()) == 1


@given(st.text())
def test_removal_takes_what_escaping_marks_and_nothing_else(text: str) -> None:
    removed = remove_invisible(text)
    assert find_invisible(removed) == ()
    assert remove_invisible(removed) == removed
    assert removed == text or find_invisible(text)


SIZES = {
    0: "0 bytes",
    1: "1 byte",
    999: "999 bytes",
    999_499: "999 kB",
    999_500: "1 MB",
    5_000_000: "5 MB",
    5 * 1024**2: "5.2 MB",
    999_500_000: "1 GB",
    1024**3: "1.1 GB",
}


def test_sizes_are_given_in_decimal_units() -> None:
    assert {size: format_size(size) for size in SIZES} == SIZES
