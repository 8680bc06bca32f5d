"""`python -m tests.promises` writes the table of `figures.toml` into the README."""

from __future__ import annotations

from pathlib import Path

from tests.support.sizes import figures

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def table() -> str:
    """Markdown. What is no count of tries, but the suite as a whole, is left out."""
    rows = (
        f"| {row['id']} | {row['what']} | {row['commit']:,} {row['unit']} | {row.get('ran', '')} |"
        for row in figures().values()
        if row["unit"] != "%"
    )
    return "\n".join(("| | what | tries in every run | most so far |", "|---|---|---:|---:|", *rows))


def with_table(text: str) -> str:
    """README with the table as it is now."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
