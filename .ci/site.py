"""A hook of mkdocs: pages outside of docs/ become pages of the site, and links of the repository work there.

A link to a page is rewritten to the page of the site. A link to another file of the repository becomes plain text,
because the site has no such file. A link to a file that does not exist is a warning, which ends a strict build.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_OUTSIDE = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    ".github/SECURITY.md",
    "thinklsp/providers/EFFORTS.md",
    "thinklsp/offline/SCENARIOS.md",
    *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("editors/*/README.md")),
    *sorted(str(picture.relative_to(ROOT)) for picture in ROOT.glob("editors/*/media/pictures/*.png")),
)
# Path in the repository -> path on the site, which leaves out folders that begin with a dot.
_ON_SITE = {path: "security-policy.md" if path == ".github/SECURITY.md" else path for path in _OUTSIDE}
_SOURCES = {on_site: path for path, on_site in _ON_SITE.items()}

_LINK = re.compile(r"(?P<begin>!?\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures outside of docs/."""
    for path, on_site in _ON_SITE.items():
        files.append(File.generated(config, on_site, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - of mkdocs
    """Rewrite the links of a page."""
    source = page.file.src_uri
    place = _SOURCES.get(source, f"docs/{source}")
    code = [found.span() for found in _CODE.finditer(markdown)]

    def rewritten(found: re.Match[str]) -> str:
        if any(begin <= found.start() < end for begin, end in code):
            return found[0]
        return _rewrite(found, source, place)

    return _LINK.sub(rewritten, markdown)


def _rewrite(found: re.Match[str], source: str, place: str) -> str:
    target = found["target"]
    if "://" in target or target.startswith("mailto:"):
        return found[0]
    path = os.path.normpath(os.path.join(os.path.dirname(place), target))
    if not (ROOT / path).exists():
        _log.warning("%s links to %s, which does not exist", place, target)
        return found[0]
    anchor = found["anchor"] or ""
    if path == "README.md":
        # The first page of the site stands for it, with other headings.
        on_site, anchor = "index.md", ""
    elif path.startswith("docs/"):
        on_site = path.removeprefix("docs/")
    elif path in _ON_SITE:
        on_site = _ON_SITE[path]
    else:
        return found["text"]
    return f"{found['begin']}{os.path.relpath(on_site, os.path.dirname(source) or '.')}{anchor})"
