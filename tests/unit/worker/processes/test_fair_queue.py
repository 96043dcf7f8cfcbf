"""The queue that tenants share by CPU seconds: order, budgets, and who is refused."""

import pytest

from worker.processes.fair_queue import BURST, MAX_BACKLOG, SHARE, FairQueue, ShareUsedUp


class Server:
    """Takes items from a queue, one at a time. The clock stands still unless a test changes it."""

    def __init__(self, *, strict: bool = False) -> None:
        self.now = 0.0
        self.queue: FairQueue[str] = FairQueue(strict=strict, clock=lambda: self.now)
        self.served: list[str] = []

    def add(self, *items: str) -> None:
        """Add items. The first letter of an item is its tenant."""
        for item in items:
            self.queue.add(item[0], item)

    def serve(self, seconds: float, count: int = 1) -> None:
        """Serve the next items, each with this cost."""
        for _ in range(count):
            item = self.queue.take()
            assert item is not None
            self.served.append(item)
            self.queue.charge(item[0], seconds)

    def use(self, tenant: str, seconds: float) -> None:
        """Let a tenant use CPU time."""
        self.add(tenant)
        self.serve(seconds)
        assert self.served.pop() == tenant


@pytest.fixture
def server() -> Server:
    return Server()


def test_items_of_one_tenant_keep_their_order(server: Server) -> None:
    server.add("a1", "a2", "a3")
    server.serve(1.0, 3)
    assert server.served == ["a1", "a2", "a3"]
    assert server.queue.take() is None


def test_a_tenant_waits_for_one_item_of_another(server: Server) -> None:
    server.add("a1", "a2", "a3")
    server.serve(5.0)
    server.add("b1", "b2")
    server.serve(0.1, 3)
    assert server.served == ["a1", "b1", "b2", "a2"]


def test_tenants_get_equal_time_not_equal_turns(server: Server) -> None:
    server.add(*(f"a{number}" for number in range(3)), *(f"b{number}" for number in range(12)))
    for _ in range(9):
        before = len(server.served)
        server.serve(0.0)
        server.queue.charge(server.served[before][0], 4.0 if server.served[before][0] == "a" else 1.0)
    assert "".join(item[0] for item in server.served) == "abbbbabbb"


def test_an_idle_tenant_accumulates_no_credit(server: Server) -> None:
    server.add("b1")
    server.serve(0.1)
    for _ in range(5):
        server.use("a", 1.0)
    server.add("a1", "a2", "b2", "b3", "b4", "b5")
    server.serve(1.2, 4)
    assert server.served == ["b1", "b2", "a1", "b3", "a2"]


def test_a_tenant_without_budget_is_served_while_no_other_waits(server: Server) -> None:
    server.use("a", 2 * BURST)
    server.add("a1")
    server.serve(1.0)
    assert server.served == ["a1"]


def test_a_tenant_without_budget_is_refused_while_another_waits(server: Server) -> None:
    server.add("a1")
    server.serve(BURST + 2.0)
    server.add("a2", "b1")
    with pytest.raises(ShareUsedUp) as refusal:
        server.add("a3")
    assert refusal.value.retry_after == 2.0 / SHARE
    server.serve(1.0, 2)
    assert server.served == ["a1", "b1", "a2"]


def test_a_budget_grows_back(server: Server) -> None:
    server.use("a", BURST + 2.0)
    server.add("b1")
    server.now = 2.0 / SHARE - 0.1
    with pytest.raises(ShareUsedUp) as refusal:
        server.add("a1")
    assert refusal.value.retry_after == 1.0  # at least
    server.now += 0.2
    server.add("a1")


def test_tenants_without_budget_share_what_is_left(server: Server) -> None:
    server.use("a", 2 * BURST)
    server.use("b", 2 * BURST)
    server.add("a1", "b1", "a2", "b2")
    server.serve(1.0, 4)
    assert server.served == ["a1", "b1", "a2", "b2"]


def test_a_strict_queue_refuses_even_if_no_other_waits() -> None:
    server = Server(strict=True)
    server.use("a", BURST + 2.0)
    with pytest.raises(ShareUsedUp):
        server.add("a1")


def test_the_items_that_wait_are_bounded_by_what_they_are_expected_to_need(server: Server) -> None:
    for _ in range(40):
        server.use("a", MAX_BACKLOG / 10)
    for number in range(9):
        server.add(f"a{number}")
    with pytest.raises(ShareUsedUp):
        server.add(*(f"a{number}" for number in range(9, 12)))
    server.add("b1")


def test_removed_items_are_not_served(server: Server) -> None:
    server.add("a1", "b1", "a2", "b2")
    assert server.queue.remove("a") == ["a1", "a2"]
    assert server.queue.clear() == ["b1", "b2"]
    assert server.queue.take() is None


def test_a_returned_item_is_the_next_of_its_tenant(server: Server) -> None:
    server.add("a1", "a2")
    assert server.queue.take() == "a1"
    server.queue.charge("a", 1.0)
    server.queue.add_first("a", "a1")
    server.serve(1.0, 2)
    assert server.served == ["a1", "a2"]


def test_idle_tenants_are_forgotten(server: Server) -> None:
    for number in range(100):
        server.use(chr(200 + number), 0.1)
        server.now += 1.0
    assert len(server.queue._tenants) < 5
