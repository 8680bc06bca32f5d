"""A `BoundedDict` contains the entries that were set last."""

from __future__ import annotations

from thinklsp.core.bounded_dict import BoundedDict


def test_newest_entries_stay_in_the_order_in_which_they_were_set() -> None:
    entries: BoundedDict[str, int] = BoundedDict(2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        entries[key] = value
    assert list(entries.items()) == [("a", 3), ("c", 4)]
