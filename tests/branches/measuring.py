"""Python that measures itself: each process of a room says, when it ends, which branches of thinklsp it took.

Servers of tests get an environment of their own, often an empty one, and are started by `sys.executable`. So it is the
interpreter that measures: a virtual environment over the one that we run in, which begins with coverage.py. What is
killed with -9 says nothing; what only happens there would not count.
"""

from __future__ import annotations

import site
import sysconfig
import venv
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).parents[2]


class Room:
    """`python` measures `source`, a folder, by the settings of `config`; `read` says what was found by all its runs."""

    def __init__(self, place: Path, source: Path, config: Path = ROOT / "pyproject.toml") -> None:
        self._source, self._config, self._data = source, config, place / "data" / "taken"
        self._data.parent.mkdir(parents=True)
        self.python = place / "bin" / "python"
        venv.EnvBuilder(symlinks=True).create(place)
        self._bring_programs()
        self._begin_with_coverage(place)

    def read(self) -> Coverage:
        """All runs together. For once, when they have ended."""
        found = self._coverage()
        found.combine(strict=True)
        return found

    def _coverage(self) -> Coverage:
        return Coverage(config_file=str(self._config), data_file=str(self._data), source=[str(self._source)])

    def _bring_programs(self) -> None:
        """What stands beside an interpreter is looked for there: ripgrep, the linter of layers."""
        for program in Path(sysconfig.get_path("scripts")).iterdir():
            if not (here := self.python.with_name(program.name)).exists():
                here.symlink_to(program)

    def _begin_with_coverage(self, place: Path) -> None:
        asked = f"config_file={str(self._config)!r}, data_file={str(self._data)!r}, source=[{str(self._source)!r}], "
        asked += "data_suffix=True, auto_data=True"
        # `site` reads such a file twice.
        lines = [
            str(ROOT),  # Before an installed thinklsp.
            *(f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()),
            f"import coverage; coverage.Coverage.current() or coverage.Coverage({asked}).start()",
        ]
        (path,) = place.glob("lib/python3*/site-packages")
        (path / "measured.pth").write_text("\n".join(lines) + "\n", "utf-8")
