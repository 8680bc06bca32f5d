"""Write the version of the server and the settings of both into package.json, in VS Code's format.

Run `python editors/vscode/settings.py` with thinklsp installed. A test of the project's suite compares the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from thinklsp import __version__
from thinklsp.settings.model import build_settings_schema

PACKAGE = Path(__file__).with_name("package.json")

# An opened folder must not choose where code is sent.
_SCOPES = {"provider": "machine"}

# These settings can raise costs, so an opened folder may set them only if the user trusts the folder.
_COSTLY = ("model", "effort", "effortByAction", "thinking", "maxTokens", "maxSteps", "budget", "compaction")

_OWN = {
    "thinklsp.ui.server.path": {
        "type": "string",
        "default": "",
        "scope": "machine",
        "markdownDescription": "Path of the `thinklsp` program, or of a Python that has it installed. If empty, "
        "the `PATH` is searched, then the Python environment of the workspace.",
    },
    "thinklsp.ui.review": {
        "type": "string",
        "enum": ["editor", "preview"],
        "default": "editor",
        "markdownDescription": "How you review edits. `editor` marks the changed lines, with *Keep* and *Undo* for "
        "each change. `preview` opens VS Code's refactor preview instead. A change restarts the server.",
    },
}


def main() -> None:
    package = json.loads(PACKAGE.read_text("utf-8"))
    package["version"] = __version__
    package["contributes"]["configuration"] = configuration()
    package["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] = restricted()
    PACKAGE.write_text(json.dumps(package, indent=4, ensure_ascii=False) + "\n", "utf-8")


def configuration() -> list[dict[str, Any]]:
    """Return the value of `contributes.configuration`."""
    whole = build_settings_schema()
    settings = {
        f"thinklsp.{key}": {**_described(part), **({"scope": _SCOPES[key]} if key in _SCOPES else {}), "order": number}
        for number, (key, part) in enumerate(_flat(whole, whole))
    }
    return [{"title": "thinklsp", "properties": settings}, {"title": "Editor", "properties": _OWN}]


def restricted() -> list[str]:
    return [key for key in configuration()[0]["properties"] if key.split(".")[1] in _COSTLY]


def _flat(part: Mapping[str, Any], whole: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each setting with its dotted key."""
    for name, inner in part["properties"].items():
        group = whole["$defs"][inner["$ref"].rpartition("/")[2]] if "$ref" in inner else inner
        if "properties" in group:
            yield from _flat(group, whole, f"{path}{name}.")
        else:
            yield f"{path}{name}", inner


def _described(part: Mapping[str, Any]) -> dict[str, Any]:
    """Replace `anyOf`, which the settings editor does not show, with a list of types and their limits."""
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
