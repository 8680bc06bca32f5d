"""Files and tables generated from the code: `python -m tests.generated` writes them, and tests compare them."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

from tests.support.sizes import figures
from thinklsp.cli.config import build_efforts_table, build_settings_table
from thinklsp.tools.registry import TOOLS, build_tool_specs

ROOT = Path(__file__).parents[1]
ADVICE = "run `python -m tests.generated`, and read the difference"
_MARKED = re.compile(r"(<!-- (\w+): made by [^\n]+ -->\n).*(<!-- end of \2 -->)", re.DOTALL)


def build_figures_table() -> str:
    """Return the table of `figures.toml` as Markdown, without rows that measure the suite as a whole."""
    rows = (
        f"| {row['id']} | {row['what']} | {row['commit']:,} {row['unit']} | {row.get('ran', '')} |"
        for row in figures().values()
        if row["unit"] != "%"
    )
    return "\n".join(("| | what | tries in every run | most so far |", "|---|---|---:|---:|", *rows))


TABLES = {
    "docs/reliability.md": build_figures_table,
    "docs/settings.md": build_settings_table,
    "thinklsp/providers/EFFORTS.md": build_efforts_table,
}


def build_page(page: str) -> str:
    """Return the text of a page with the present table between its two marks."""
    table = TABLES[page]()
    text, count = _MARKED.subn(lambda found: f"{found[1]}{table}\n{found[3]}", (ROOT / page).read_text("utf-8"))
    assert count == 1, page
    return text


def write_all() -> None:
    from tests.providers.test_requests import build_golden
    from tests.support.chat_samples import FOLDER, KINDS
    from tests.tools.test_tool_calls import GOLDEN, as_json

    for page in TABLES:
        (ROOT / page).write_text(build_page(page), "utf-8")
    GOLDEN.write_text(as_json(build_tool_specs(TOOLS)), "utf-8")
    for kind in KINDS:
        text = json.dumps(build_golden(kind), indent=2, ensure_ascii=False)
        (FOLDER / "requests" / f"{kind}.json").write_text(text + "\n", "utf-8")
    for script in ("editors/vscode/settings.py", "docs/packaging/generate.py"):
        runpy.run_path(str(ROOT / script), run_name="__main__")


if __name__ == "__main__":
    write_all()
