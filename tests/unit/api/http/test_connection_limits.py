"""Bounds on the number of connections: who gives way, and who is refused."""

from dataclasses import dataclass, field

import pytest

from api.http.connection_limits import RESERVE, ConnectionLimits, max_connections


@dataclass(eq=False)
class Peer:
    """A connection that only notes what happens to it."""

    address: str = "192.0.2.1"
    aborted: bool = False
    retired: bool = False
    expired: list[float] = field(default_factory=list)

    def abort(self) -> None:
        self.aborted = True

    def retire(self) -> None:
        self.retired = True

    def expire(self, now: float) -> None:
        self.expired.append(now)


def peers(count: int, address: str = "192.0.2.1") -> list[Peer]:
    return [Peer(address) for _ in range(count)]


def test_the_longest_waiting_gives_way() -> None:
    limits = ConnectionLimits(3, 0)
    first, second, third, fourth = peers(4)
    assert all(limits.add(one) for one in (first, second, third))
    limits.set_busy(first)
    limits.set_waiting(first)
    assert limits.add(fourth)
    assert [one.aborted for one in (first, second, third, fourth)] == [False, True, False, False]
    assert len(limits) == 3


def test_busy_connections_do_not_give_way() -> None:
    limits = ConnectionLimits(2, 0)
    busy = peers(2)
    for one in busy:
        assert limits.add(one)
        limits.set_busy(one)
    new = Peer()
    assert not limits.add(new)
    limits.set_waiting(new)
    limits.set_waiting(busy[0])
    assert limits.add(Peer())
    assert [one.aborted for one in (*busy, new)] == [True, False, False]


def test_connections_over_the_limit_are_bounded() -> None:
    limits = ConnectionLimits(1, 0)
    busy = Peer()
    limits.add(busy)
    limits.set_busy(busy)
    over_limit = peers(RESERVE + 5)
    assert not any(limits.add(one) for one in over_limit)
    assert [one.aborted for one in over_limit] == [True] * 5 + [False] * RESERVE
    assert len(limits) == 1 + RESERVE
    assert not busy.aborted


def test_an_address_cannot_take_the_place_of_others() -> None:
    limits = ConnectionLimits(100, 2)
    assert [limits.add(one) for one in peers(3)] == [True, True, False]
    others = peers(3, "192.0.2.2")
    assert [limits.add(one) for one in others] == [True, True, False]
    for _ in range(2):
        limits.remove(others[0])
        limits.remove(others[2])
    assert limits.add(Peer("192.0.2.2"))
    assert not limits.add(Peer("192.0.2.2"))


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    limits = ConnectionLimits(100, 2)
    assert limits.add(Peer("2001:db8::1"))
    assert limits.add(Peer("2001:db8::ffff:1"))
    assert not limits.add(Peer("2001:db8:0:0:9::1"))
    assert limits.add(Peer("2001:db8:0:1::1"))
    assert limits.add(Peer("::ffff:192.0.2.1"))
    assert limits.add(Peer("192.0.2.1"))
    assert not limits.add(Peer("192.0.2.1"))
    assert limits.add(Peer("fe80::1%eth0"))
    assert limits.add(Peer(""))


def test_nothing_is_kept_of_closed_connections() -> None:
    limits = ConnectionLimits(2, 1)
    many = peers(200)
    for one in many:
        limits.add(one)
    for one in many:
        limits.remove(one)
    assert len(limits) == 0
    assert limits.add(Peer())


def test_every_open_connection_is_held_to_its_deadline() -> None:
    limits = ConnectionLimits(1, 0)
    one, two, three = peers(3)
    for peer in (one, two, three):
        limits.add(peer)
        limits.set_busy(peer)
    limits.remove(two)
    limits.expire(5.0)
    assert (one.expired, two.expired, three.expired) == ([5.0], [], [5.0])


@pytest.mark.parametrize(
    ("wanted", "files", "expected"),
    [(100, None, 100), (100, 1024, 100), (16_384, 1024, 896), (100, 64, 16), (4, 64, 4)],
)
def test_open_files_bound_the_connections(wanted: int, files: int | None, expected: int) -> None:
    assert max_connections(wanted, files) == expected


def test_a_full_replica_warns_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    limits = ConnectionLimits(1, 0)
    for peer in peers(50):
        limits.add(peer)
    assert len(caplog.records) == 1
    assert "--max-connections" in caplog.text


def test_all_connections_retire_when_the_replica_ends() -> None:
    limits = ConnectionLimits(3, 0)
    known = peers(2)
    for one in known:
        limits.add(one)
    limits.retire()
    assert limits.closing
    assert all(one.retired for one in known)
