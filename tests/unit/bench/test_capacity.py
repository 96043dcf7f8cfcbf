"""What the benchmark of capacity computes from what it measures."""

import pytest

from bench.capacity import BATCH, STEP, demand

COSTS = {
    "advertise": 20.0,
    "look for lapsed claims": 20.0,
    "look at an empty queue": 20.0,
    "replica: read the registry": 700.0,
    "replica: read the keys": 10.0,
    "queue a request": 50.0,
    "claim a request": 50.0,
    "end a request": 0.0,
    f"step of {BATCH} jobs, 1 replica": 100.0,
    f"step of {BATCH} jobs, {BATCH} replicas": 100.0 + 3.0 * (BATCH - 1),
    f"renew {BATCH} claims": 90.0,
}


def test_a_step_has_one_frame_where_there_is_one_replica() -> None:
    assert demand(COSTS, 10, 1)["frames"] == pytest.approx(10 / STEP * 3e-6)


def test_a_step_has_a_frame_for_each_replica_that_its_jobs_belong_to() -> None:
    few, many = (demand(COSTS, 10, replicas)["frames"] / demand(COSTS, 10, 1)["frames"] for replicas in (4, 10_000))
    assert few == pytest.approx(4, rel=0.01)
    assert many == pytest.approx(BATCH, rel=0.01)


def test_what_replicas_read_grows_with_workers_and_replicas_together() -> None:
    small, large = demand(COSTS, 100, 10)["replicas' looks"], demand(COSTS, 1000, 100)["replicas' looks"]
    assert large / small > 20
