"""All folders that attack whoever opens them. Run as a script it makes them:

`python -m tests.support.hostile_repositories FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support import hostile_files, hostile_git, hostile_programs, hostile_settings
from tests.support.hostile_ground import ground, make

HOSTILE = (*hostile_git.ROWS, *hostile_programs.ROWS, *hostile_settings.ROWS, *hostile_files.ROWS)


def make_all(folder: Path) -> None:
    for number, row in enumerate(HOSTILE):
        place = folder / f"{number:02} {row.name.replace('/', ' ')}"
        make(row, ground(place))


if __name__ == "__main__":
    make_all(Path(sys.argv[1]))
