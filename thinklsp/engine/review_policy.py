"""The review policy, which determines the changes that the user must confirm before they are applied."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit, compute_hunks
from thinklsp.core.lines import find_line_starts
from thinklsp.engine.merge_plan import MergedFile, Scope

# Matches the text between a JSON key and its value, which may include comments. The possessive quantifiers and the
# limits keep matching linear.
_BLOCK = r"/\*[^*]{0,200}+(?:\*(?!/)[^*]{0,200}+){0,5}+\*/"
_GAP = rf"(?:\s++|{_BLOCK}|//[^\n]{{0,200}}+\n){{0,20}}+"
_ADDRESS = r"""((?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^\s"'<>]+)"""
# Matches `$schema` and `$ref` in JSON, and the schema comments for YAML and TOML. Each pattern starts with a fixed
# character, so the search is fast.
_NAMED = (
    re.compile(rf"""\$(?:schema|ref)["']?{_GAP}[:=]{_GAP}["']?{_ADDRESS}"""),
    re.compile(rf"#:schema\s+{_ADDRESS}"),
)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|/)")
_MAX_HOSTS = 3

DOWNLOADS = "makes the editor download a schema from"
UNTRUSTED = "in a folder that you do not trust"


def find_added_hosts(before: str, after: str) -> list[str]:
    """Return at most three hosts from the schema URLs that only the new text contains."""
    added = _find_addresses(after) - _find_addresses(before)
    return sorted({_parse_host(address) for address in added})[:_MAX_HOSTS]


def _find_addresses(text: str) -> set[str]:
    if "\\" in text:
        # JSON allows every character of a URL to be escaped.
        text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "/", text)
    addresses = {address for named in _NAMED for address in named.findall(text)}
    return {address for address in addresses if not address.startswith("file:///")}


def _parse_host(address: str) -> str:
    try:
        host = urlsplit(address).hostname
    except ValueError:
        host = None
    return (host or "the network").encode("ascii", "backslashreplace").decode()[:100]


def find_operation_reason(file: FileEdit, scope: Scope | None) -> str | None:
    """Return the reason why an operation on an entire file needs a review, or None if it needs none."""
    if file.is_deletion:
        return "deletes the file"
    if file.new_uri is not None:
        return "renames the file"
    return find_file_reason(file, scope)


def find_file_reason(file: FileEdit, scope: Scope | None) -> str | None:
    """Return the reason why all changes to a file need a review, or None if the review depends on the changed lines."""
    if hosts := find_added_hosts(file.before or "", file.after or ""):
        return f"{DOWNLOADS} {', '.join(hosts)}"
    if scope is not None and file.path in scope.untrusted:
        return UNTRUSTED
    if scope is not None and scope.uri is not None and file.uri != scope.uri:
        return "in a different file"
    return None


def find_lines_reason(scope: Scope | None, lines: tuple[int, int]) -> str | None:
    """Return the reason why a hunk in the requested file needs a review, or None if it needs none.

    `lines` is a zero-based range of lines. It includes the line at which the replaced text ends.
    """
    if scope is None or scope.lines is None:
        return None
    first, last = scope.lines
    return None if first <= lines[0] and lines[1] <= last + 1 else "outside the requested lines"


def should_review(files: Sequence[MergedFile], review: Review, scope: Scope | None) -> bool:
    """Return whether an edit needs a review. With the policy `auto`, changes that the user requested need none."""
    if review != "auto":
        return review == "always"
    return any(reason for item in files for reason in find_hunk_reasons(item, scope))


def find_hunk_reasons(item: MergedFile, scope: Scope | None) -> list[str | None]:
    """Return, for each hunk of a file's edit, the reason why it needs a review, or None if it needs none."""
    file, text = replace(item.file, after=item.after), item.current.text
    if file.is_deletion or text is None:
        return [find_operation_reason(file, scope)]
    reason = find_file_reason(file, scope)
    reasons = [reason or find_lines_reason(scope, lines) for lines in _list_hunk_lines(text, item.after or "")]
    return reasons if file.new_uri is None else [*reasons, find_operation_reason(file, scope)]


def _list_hunk_lines(before: str, after: str) -> Iterator[tuple[int, int]]:
    """Yield the zero-based first and last line that each hunk replaces."""
    starts = find_line_starts(before)
    for hunk in compute_hunks(before, after):
        yield bisect_right(starts, hunk.start) - 1, bisect_right(starts, hunk.end) - 1
