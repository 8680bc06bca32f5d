"""Python that measures itself: each process of a room says, when it ends, which branches of thinklsp it took.

Servers of tests get an environment of their own, often an empty one, and are started by `sys.executable`. So it is the
interpreter that measures: a virtual environment over the one that we run in, which begins with coverage.py. What is
killed with -9 says nothing; what only happens there would not count.
"""

from __future__ import annotations

import site
import sysconfig
import venv
import warnings
from pathlib import Path

from coverage import Coverage
from coverage.exceptions import CoverageWarning

ROOT = Path(__file__).parents[2]

# Nothing is measured by those that could not tell, such as commands in a sandbox.
_BEGIN = """
import os
if os.access(os.path.dirname({data!r}), os.W_OK):
    import coverage
    measuring = coverage.Coverage(
        config_file={config!r}, data_file={data!r}, source=[{source!r}], data_suffix=True, auto_data=True
    )
    measuring.start()
"""


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
        found = Coverage(config_file=str(self._config), data_file=str(self._data), source=[str(self._source)])
        with warnings.catch_warnings():
            # What a server has written that was killed meanwhile, or might write no more, is half a file.
            warnings.simplefilter("ignore", CoverageWarning)
            found.combine(strict=True)
        return found

    def _bring_programs(self) -> None:
        """What stands beside an interpreter is looked for there: ripgrep, the linter of layers."""
        for program in Path(sysconfig.get_path("scripts")).iterdir():
            if not (here := self.python.with_name(program.name)).exists():
                here.symlink_to(program)

    def _begin_with_coverage(self, place: Path) -> None:
        (packages,) = place.glob("lib/python3*/site-packages")
        (packages / "measured.py").write_text(
            _BEGIN.format(config=str(self._config), data=str(self._data), source=str(self._source)), "utf-8"
        )
        lines = [
            str(ROOT),  # Before an installed thinklsp.
            *(f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()),
            "import measured",
        ]
        (packages / "measured.pth").write_text("\n".join(lines) + "\n", "utf-8")
