"""How many refused tokens an address has."""

from __future__ import annotations

from thinklsp.identity.tokens import MAX_FAILURES, PERIOD_SECONDS, FailureLimit


def test_limit_is_per_address_and_minute() -> None:
    now = 0.0
    limit = FailureLimit(lambda: now)
    for _ in range(MAX_FAILURES):
        assert not limit.is_exceeded("192.0.2.1")
        limit.add("192.0.2.1")
        now += 1
    assert limit.is_exceeded("192.0.2.1")
    assert not limit.is_exceeded("192.0.2.2")
    now = PERIOD_SECONDS
    assert not limit.is_exceeded("192.0.2.1")
    limit.add("192.0.2.1")
    assert limit.is_exceeded("192.0.2.1")


def test_machine_with_many_ipv6_addresses_is_one() -> None:
    limit = FailureLimit(lambda: 0.0)
    for number in range(MAX_FAILURES):
        limit.add(f"2001:db8:1:2::{number:x}")
    assert limit.is_exceeded("2001:db8:1:2:ffff::1")
    assert not limit.is_exceeded("2001:db8:1:3::1")
    for _ in range(MAX_FAILURES):
        limit.add("fe80::1%eth0")
    assert limit.is_exceeded("fe80::2%eth1")


def test_mapped_address_is_the_ipv4_address() -> None:
    limit = FailureLimit(lambda: 0.0)
    for _ in range(MAX_FAILURES):
        limit.add("::ffff:192.0.2.1")
    assert not limit.is_exceeded("::ffff:192.0.2.2")


def test_table_forgets_the_oldest_address() -> None:
    limit = FailureLimit(lambda: 0.0, max_addresses=2)
    for address in ("192.0.2.1", "192.0.2.2"):
        for _ in range(MAX_FAILURES):
            limit.add(address)
    limit.add("192.0.2.3")
    assert not limit.is_exceeded("192.0.2.1")
    assert limit.is_exceeded("192.0.2.2")
    limit.add("not an address")
    assert not limit.is_exceeded("192.0.2.2")
