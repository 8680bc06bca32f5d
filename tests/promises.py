"""`python -m tests.promises` writes the table of `figures.toml` into docs/reliability.md."""

from __future__ import annotations

from pathlib import Path

from tests.support.sizes import figures

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def table() -> str:
    """Return the table as Markdown, without rows that measure the suite as a whole."""
    rows = (
        f"| {row['id']} | {row['what']} | {row['commit']:,} {row['unit']} | {row.get('ran', '')} |"
        for row in figures().values()
        if row["unit"] != "%"
    )
    return "\n".join(("| | what | tries in every run | most so far |", "|---|---|---:|---:|", *rows))


def with_table(text: str) -> str:
    """Return the page with the present table."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
