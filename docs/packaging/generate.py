"""Write the packagers' files of this folder from the project's metadata: `python docs/packaging/generate.py`.

A test compares the files with what this module builds.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
_ROOT = FOLDER.parents[1]
# The owner of the repository is known when the project is published.
_REPOSITORY = "https://github.com/OWNER/thinklsp"
_NOT_PYTHON = "ripgrep"
_TO_FILL_IN = "0" * 64


def build_files() -> dict[str, str]:
    """Return the text of each file by its name."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = _read_version((_ROOT / "thinklsp" / "__init__.py").read_text("utf-8"))
    names = [_read_name(requirement) for requirement in project["dependencies"]]
    values = {
        "name": project["name"],
        "description": project["description"],
        "licence": project["license"],
        "repository": _REPOSITORY,
        "version": version,
        "sha256": _TO_FILL_IN,
        "libraries": "\n".join(_indent_libraries(names)),
        "grammars": "\n".join(f'        "{name}"' for name in names if name.startswith("tree-sitter-")),
    }
    return {name: _fill(template, values) for name, template in _TEMPLATES.items()}


def _read_version(source: str) -> str:
    """Return the version without importing the package, whose dependencies may be missing."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            return str(ast.literal_eval(node.value))
    raise ValueError("thinklsp/__init__.py has no __version__")


def _read_name(requirement: str) -> str:
    return next((requirement[:end] for end, sign in enumerate(requirement) if sign in "<>=![;"), requirement)


def _indent_libraries(names: list[str]) -> Iterator[str]:
    for name in names:
        if name != _NOT_PYTHON and not name.startswith("tree-sitter-"):
            yield f"            ps.{name}"


def _fill(template: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template.lstrip("\n")


_TEMPLATES = {
    "agent.json": """
{
  "id": "@name@",
  "name": "@name@",
  "version": "@version@",
  "description": "@description@",
  "repository": "@repository@",
  "authors": ["The authors of @name@"],
  "license": "@licence@",
  "distribution": {
    "uvx": {
      "package": "@name@@@version@",
      "args": ["acp"]
    }
  }
}
""",
    "icon.svg": """
<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16" fill="none" stroke="currentColor">
  <path d="M5 2.5 1.5 8 5 13.5M11 2.5 14.5 8 11 13.5" stroke-width="1.5" stroke-linejoin="round"/>
  <circle cx="5.5" cy="8" r="1" fill="currentColor" stroke="none"/>
  <circle cx="8" cy="8" r="1" fill="currentColor" stroke="none"/>
  <circle cx="10.5" cy="8" r="1" fill="currentColor" stroke="none"/>
</svg>
""",
    "mason.yaml": """
---
name: thinklsp
description: |
  @description@
homepage: @repository@
licenses:
  - @licence@
languages: []
categories:
  - LSP

supported_platforms:
  - unix

source:
  id: pkg:pypi/thinklsp@@version@

bin:
  thinklsp: pypi:thinklsp
""",
    "thinklsp.lua": """
---@brief
---
--- @repository@
---
--- @description@
--- It attaches to all files. The plug-in in `editors/neovim` adds the chat and the review of edits.

---@type vim.lsp.Config
return {
  cmd = { 'thinklsp', '--stdio' },
  root_markers = { '.git' },
}
""",
    "thinklsp.rb": """
class Thinklsp < Formula
  include Language::Python::Virtualenv

  desc "Language server that thinks: an AI coding assistant for any editor"
  homepage "@repository@"
  url "@repository@/releases/download/v@version@/thinklsp-@version@.tar.gz"
  sha256 "@sha256@"
  license "@licence@"

  depends_on "rust" => :build # pydantic-core
  depends_on "python@3.13"
  depends_on "ripgrep"

  # `brew update-python-resources thinklsp` writes one resource for each dependency here.

  def install
    virtualenv_install_with_resources
  end

  test do
    ENV["THINKLSP_PROVIDER"] = "simulator"
    assert_match "thinklsp @version@", shell_output("#{bin}/thinklsp --version")
    assert_match "ready to run a turn", shell_output("#{bin}/thinklsp doctor")
  end
end
""",
    "flake.nix": """
{
  description = "@description@";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";

  outputs = { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      grammars = [
@grammars@
      ];
      build = pkgs:
        let
          ps = pkgs.python3Packages;
          # A language whose grammar nixpkgs does not have gets no outlines.
          present = lib.filter (name: ps ? ${name}) grammars;
        in
        ps.buildPythonApplication {
          pname = "thinklsp";
          version = "@version@";
          pyproject = true;
          src = self.sourceInfo; # The repository, not this folder.
          build-system = [ ps.hatchling ];
          dependencies = [
@libraries@
          ] ++ map (name: ps.${name}) present;
          pythonRelaxDeps = true;
          pythonRemoveDeps = [ "ripgrep" ] ++ lib.subtractLists present grammars;
          makeWrapperArgs = [ "--prefix PATH : ${lib.makeBinPath [ pkgs.ripgrep ]}" ];
          pythonImportsCheck = [ "thinklsp" ];
          doCheck = false;
          meta = {
            description = "@description@";
            homepage = "@repository@";
            license = lib.licenses.asl20;
            mainProgram = "thinklsp";
          };
        };
    in
    {
      packages = lib.genAttrs systems (system: { default = build nixpkgs.legacyPackages.${system}; });
    };
}
""",
}


if __name__ == "__main__":
    for name, text in build_files().items():
        (FOLDER / name).write_text(text, "utf-8")
