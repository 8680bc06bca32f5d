"""What the runs of a room have taken, against what `branches.toml` wants. A line that never ran counts as a branch."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coverage import Coverage

Json = Any
TABLE: Json = tomllib.loads((Path(__file__).parent / "branches.toml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Part:
    """Some modules together. `missing`: FILE:LINE for what never ran, FILE:LINE->LINE for what was never gone."""

    name: str
    branches: int
    taken: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    parts: tuple[Part, ...]
    whole: float

    def told(self) -> str:
        """A line for each part, with what it lacks below it."""
        lines = [f"{'branches':>28} {'taken':>8} {'lacking':>8}"]
        for part in self.parts:
            lines.append(f"{part.name:<19} {part.branches:>8} {part.taken:>8} {len(part.missing):>8}")
            lines += [f"  {place}" for place in part.missing]
        return "\n".join([*lines, f"the whole package, lines and branches: {self.whole:.2f} %"])


def judged(found: Coverage, root: Path, parts: Json, report: Path) -> Verdict:
    """`parts`: name and modules of each, as in the table. `report`: where all of it is kept."""
    found.json_report(outfile=str(report))
    read = json.loads(report.read_text("utf-8"))
    files = {
        str((Path.cwd() / name).resolve().relative_to(root.resolve())): file for name, file in read["files"].items()
    }
    return Verdict(tuple(_part(part, files) for part in parts), read["totals"]["percent_covered"])


def _part(part: Json, files: Json) -> Part:
    branches = taken = 0
    missing: list[str] = []
    for name in part["modules"]:
        file = files[name]
        branches += file["summary"]["num_branches"]
        taken += file["summary"]["covered_branches"]
        missing += [f"{name}:{line}" for line in file["missing_lines"]]
        # Below zero is the way out of a function.
        missing += [f"{name}:{line}->{to if to > 0 else 'exit'}" for line, to in file["missing_branches"]]
    return Part(part["name"], branches, taken, tuple(missing))
