"""What a document makes an editor load from the network by being open, without anybody's doing: the schemas that it
names. An address that a model has written can carry out what the model has read (the "IDEsaster" reports of 2025).
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

# Between a key of JSON and its value; comments, too, in the dialects that have them. Bounds, and that nothing is tried
# twice, keep it linear.
_BLOCK = r"/\*[^*]{0,200}+(?:\*(?!/)[^*]{0,200}+){0,5}+\*/"
_GAP = rf"(?:\s++|{_BLOCK}|//[^\n]{{0,200}}+\n){{0,20}}+"
_ADDRESS = r"""((?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^\s"'<>]+)"""
# JSON's `$schema` and `$ref`, and the comments that the servers of YAML and TOML read. Each begins with one letter that
# can be looked for quickly.
_NAMED = (
    re.compile(rf"""\$(?:schema|ref)["']?{_GAP}[:=]{_GAP}["']?{_ADDRESS}"""),
    re.compile(rf"#:schema\s+{_ADDRESS}"),
)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|/)")
_MOST = 3


def newly_fetched(before: str, after: str) -> list[str]:
    """The hosts, three at most, of the addresses that only the later text names."""
    new = _addresses(after) - _addresses(before)
    return sorted({_host(address) for address in new})[:_MOST]


def _addresses(text: str) -> set[str]:
    if "\\" in text:
        # In JSON every letter of it could be written as an escape.
        text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "/", text)
    found = {address for named in _NAMED for address in named.findall(text)}
    return {address for address in found if not address.startswith("file:///")}


def _host(address: str) -> str:
    try:
        host = urlsplit(address).hostname
    except ValueError:
        host = None
    return (host or "the network").encode("ascii", "backslashreplace").decode()[:100]
