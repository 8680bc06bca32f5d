"""The settings of the extension: those of the server, as VS Code describes settings, and those of its own face.

`python editors/vscode/settings.py` (with thinklsp installed) writes them into package.json beside this file; a test of
the project's suite compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from thinklsp.settings import schema

PACKAGE = Path(__file__).with_name("package.json")

# What decides where code is sent belongs to the user of the machine: no opened folder may set it.
_SCOPES = {"provider": "machine"}

# What an opened folder sets of these counts only when the user trusts it: it costs money.
_COSTLY = ("model", "effort", "effortByAction", "thinking", "maxTokens", "maxSteps", "budget", "compaction")

_OWN = {
    "thinklsp.ui.server.path": {
        "type": "string",
        "default": "",
        "scope": "machine",
        "markdownDescription": "Path of the `thinklsp` program, or of a Python in which it is installed. Empty: "
        "looked for on the `PATH`, then in the Python environment of the workspace.",
    }
}


def main() -> None:
    package = json.loads(PACKAGE.read_text("utf-8"))
    package["contributes"]["configuration"] = configuration()
    package["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] = restricted()
    PACKAGE.write_text(json.dumps(package, indent=4, ensure_ascii=False) + "\n", "utf-8")


def configuration() -> list[dict[str, Any]]:
    """What `contributes.configuration` has to be."""
    whole = schema()
    settings = {
        f"thinklsp.{key}": {**_described(part), **({"scope": _SCOPES[key]} if key in _SCOPES else {}), "order": number}
        for number, (key, part) in enumerate(_flat(whole, whole))
    }
    return [{"title": "thinklsp", "properties": settings}, {"title": "Editor", "properties": _OWN}]


def restricted() -> list[str]:
    return [key for key in configuration()[0]["properties"] if key.split(".")[1] in _COSTLY]


def _flat(part: Mapping[str, Any], whole: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each setting by its dotted key."""
    for name, inner in part["properties"].items():
        group = whole["$defs"][inner["$ref"].rpartition("/")[2]] if "$ref" in inner else inner
        if "properties" in group:
            yield from _flat(group, whole, f"{path}{name}.")
        else:
            yield f"{path}{name}", inner


def _described(part: Mapping[str, Any]) -> dict[str, Any]:
    """Without `anyOf`, which the settings editor does not show: a type with its limits, or one of several types."""
    found = {key: value for key, value in part.items() if key not in ("title", "description", "anyOf")}
    types = []
    for choice in part.get("anyOf", ()):
        types.append(choice["type"])
        for key, value in choice.items():
            if key == "const":
                found["pattern"] = f"^{value}$"
            elif key != "type":
                found[key] = value
    if types:
        found["type"] = types
    return {**found, "markdownDescription": part["description"]}


if __name__ == "__main__":
    main()
