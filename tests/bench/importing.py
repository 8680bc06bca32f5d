"""Imports the modules that a file lists, one name per line and in that order: `python importing.py FILE`.

Prints JSON: the processor time in milliseconds, and the resident memory in MB afterwards.
"""

import importlib
import json
import sys
import time


def main() -> None:
    with open(sys.argv[1]) as file:
        names = file.read().split()
    begun = time.process_time()
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            # Libraries try to import optional modules that are not installed. All modules of thinklsp must exist.
            if name.partition(".")[0] == "thinklsp":
                raise
    taken = (time.process_time() - begun) * 1000
    with open("/proc/self/status") as status:
        memory = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS:"))
    print(json.dumps({"cpu": taken, "memory": memory, "modules": len(sys.modules)}))


if __name__ == "__main__":
    main()
