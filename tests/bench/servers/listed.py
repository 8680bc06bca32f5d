"""thinklsp with a log of its imports: writes the name of each imported module to the file `MODULES`."""

import importlib.machinery
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

modules = open(os.environ["MODULES"], "w", buffering=1)  # noqa: SIM115 - open until the process ends


class Listing:
    """A finder that Python calls first. It logs the name and finds nothing."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        modules.write(f"{name}\n")
        return None


sys.meta_path.insert(0, Listing())
sys.argv = ["thinklsp"]
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
