"""What a preview would load by itself becomes text; what is honest stays as it is."""

from __future__ import annotations

import json
import re

import pytest

from thinklsp.tools.markdown_sanitizer import escape_all, sanitize, sanitize_in_background

BECOMES = {
    "an image": ("See ![x](https://e/?d=1).", "See !\\[x](https://e/?d=1)."),
    "one that is escaped already": ("!\\[x](u) \\![x](u) \\\\![y](u)", "!\\[x](u) \\!\\[x](u) \\\\!\\[y](u)"),
    "an image by reference": ("![x][r]\n\n[r]: https://e", "!\\[x][r]\n\n[r\\]: https://e"),
    "a reference alone": ("[r]: https://e\n", "[r\\]: https://e\n"),
    "an element": ("a <img src=x>\n", "a \\<img src=x>\n"),
    "a style": ("<style>\n@import 'x'\n</style>", "\\<style>\n@import 'x'\n\\</style>"),
    "a comment without end": ("<!-- a\n\nb", "\\<!-- a\n\nb"),
    "a command": ("[x](command:y) [z](https://z)", "[x\\](command:y) [z\\](https://z)"),
    "a hidden command": ("[x](&#99;ommand:y)", "[x\\](&#99;ommand:y)"),
    "a file of another machine": ("[x](file://e/y)", "[x\\](file://e/y)"),
    "only its own paragraph": ("![x](u)\n\n`![y](u)`\r\n", "!\\[x](u)\n\n`![y](u)`\r\n"),
    "a diagram that leads away": ('```mermaid\nclick A "https://e"\n```', '```text\nclick A "https://e"\n```'),
    "a diagram with options": ("~~~ {.mermaid x=1}\nA@{img: x}\n~~~", "~~~text\nA@{img: x}\n~~~"),
    "behind a list's code that ends before its fence": ("- a\n  ```\n![x](u)\n  ```", "- a\n  ```\n!\\[x](u)\n  ```"),
    "code that a table cuts": ("|a|b|\n|-|-|\n|`c|![x](u)`|", "|a|b|\n|-|-|\n|`c|!\\[x](u)`|"),
    "code that a formula cuts": ("$a`$ ![x](u) `", "$a`$ !\\[x](u) `"),
    "a fence within a formula": ("$$\n```\n$$\n![x](u)\n```", "$$\n```\n$$\n!\\[x](u)\n```"),
    "the indented text of a note": ("[^1]: a b\n\n    ![x](u)", "[^1]: a b\n\n    !\\[x](u)"),
    "more nesting than other parsers stop at": (">" * 150 + "![x](u)", ">" * 150 + "!\\[x](u)"),
    "behind a byte order mark": ("\ufeff|a|b|\n|-|-|\n|`c|![x](u)`|", "|a|b|\n|-|-|\n|`c|!\\[x](u)`|"),
}


@pytest.mark.parametrize("name", BECOMES)
def test_what_loads_becomes_text(name: str) -> None:
    before, after = BECOMES[name]
    assert sanitize(before) == after
    assert sanitize(after) == after


STAYS = [
    "", "plain *text* with [a page](https://example.org/a_(b)) and [a file](src/a.py#L3), me@example.org\n",
    "`vec![1]`, `Vec<T>`, `![x](u)`, `<img src=x>`", "Map<K> and List<String>, a < b, x<y>z, a <- b, 1 <2",
    "1. Write:\n\n   ```html\n   <img src=\"logo.png\">\n   ```\n2. Done", "```md\n![x](u)\n[r]: https://e\n```",
    "<details>\n<summary>More</summary>\n\ntext<br>and <kbd>Ctrl</kbd>\n\n</details>", "<!-- note -->",
    "```mermaid\ngraph TD\n  A[Start] --> B{Right?}\n```", "a[0]: b, d[x](y), !important, wow!", "price: $5 or $6",
    "- [ ] task\n- [x] done", "| a | b |\n|---|---|\n| `x` | y |\n",
]  # fmt: skip


@pytest.mark.parametrize("text", STAYS)
def test_what_is_honest_stays(text: str) -> None:
    for end in ("\n", "\r\n", "\r"):
        assert sanitize(text.replace("\n", end)) == text.replace("\n", end)


@pytest.mark.parametrize("sign", [">", "- ", "[", "![", "<a ", "*a **b ", "` ", "[x](", "|a"])
def test_what_nobody_can_read_ends(sign: str) -> None:
    assert "![x](u)" not in sanitize(sign * 2_000 + "![x](u)")


def tower(height: int) -> str:
    """Markup that is hidden in a fence, whose end is hidden in markup that is hidden in a fence, and so on: what one
    look finds and spells out opens the fence above the next."""
    lines = ["<?", "~~~", "?>"]
    for storey in range(1, height):
        outer, inner = ("```", "~~~") if storey % 2 == 0 else ("~~~", "```")
        lines += [outer, "<?", inner, "?>", outer]
    return "\n".join(lines)


@pytest.mark.parametrize("height", [1, 2, 7, 12, 100])
def test_what_is_hidden_many_times_over_becomes_text(height: int) -> None:
    assert len(re.findall(r"\\<\?", sanitize(tower(height)))) == height


async def test_a_long_text_is_read_in_a_worker_process() -> None:
    """The result is the same, and no Markdown at all if the worker gives none."""
    long = "An honest [page](https://e) and ![an image](https://e).\n\n" * 500
    assert len(long) > 20_000
    assert await sanitize_in_background(long) == sanitize(long)
    assert await sanitize_in_background(long, json.loads) == escape_all(long)
