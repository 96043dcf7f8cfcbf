"""What the bench computes from what it measures."""

import os
import subprocess
import sys
import time

import pytest

from bench.capacity import BATCH, STEP, demand
from bench.streams import lateness, line_below
from bench.usage import resident
from tests.support.processes import family
from worker.processes.child import cpu_seconds

COSTS = {
    "advertise": 20.0,
    "look for lapsed claims": 20.0,
    "look at an empty queue": 20.0,
    "replica: read the registry": 700.0,
    "replica: read the keys": 10.0,
    "queue a request": 50.0,
    "claim a request": 50.0,
    f"step of {BATCH} jobs, 1 replica": 100.0,
    f"step of {BATCH} jobs, {BATCH} replicas": 100.0 + 3.0 * (BATCH - 1),
    f"renew {BATCH} claims": 90.0,
}


def test_the_line_below_touches_points_and_none_lies_below_it() -> None:
    slope, start = line_below([(0, 5.0), (1, 8.0), (2, 9.0), (3, 12.5), (4, 13.0)])
    assert (slope, start) == pytest.approx((2.0, 5.0))


def test_the_line_below_takes_the_lowest_of_points_at_one_place() -> None:
    assert line_below([(3, 2.0), (3, 1.0)]) == (0.0, 1.0)


def test_tokens_on_time_are_not_late() -> None:
    streams = [[100 + second for second in range(6)], [102 + second for second in range(4)]]
    assert lateness(streams) == pytest.approx([0.0] * 10)


def test_lateness_is_measured() -> None:
    on_time = [100.0 + second for second in range(6)]
    held_up = [100.5, 101.0, 102.25, 103.0, 104.0, 105.0]
    late = lateness([on_time, held_up])
    assert sorted(late)[-2:] == pytest.approx([0.25, 0.5])
    assert sorted(late)[:-2] == pytest.approx([0.0] * 10)


def test_a_stream_that_is_always_late_counts_as_late() -> None:
    late = lateness([[100.0 + second for second in range(6)], [100.3 + second for second in range(6)]])
    assert sorted(late)[6:] == pytest.approx([0.3] * 6)


def test_steps_longer_than_planned_make_no_lateness() -> None:
    assert lateness([[100 + 1.05 * step for step in range(8)]]) == pytest.approx([0.0] * 8)


def test_streams_of_one_token_say_nothing() -> None:
    assert lateness([[1.0], []]) == []


def test_a_step_has_one_frame_where_there_is_one_replica() -> None:
    assert demand(COSTS, 10, 1)["frames"] == pytest.approx(10 / STEP * 3e-6)


def test_a_step_has_a_frame_for_each_replica_that_its_jobs_belong_to() -> None:
    few, many = (demand(COSTS, 10, replicas)["frames"] / demand(COSTS, 10, 1)["frames"] for replicas in (4, 10_000))
    assert few == pytest.approx(4, rel=0.01)
    assert many == pytest.approx(BATCH, rel=0.01)


def test_what_replicas_read_grows_with_workers_and_replicas_together() -> None:
    small, large = demand(COSTS, 100, 10)["replicas' looks"], demand(COSTS, 1000, 100)["replicas' looks"]
    assert large / small > 20


def test_usage_of_this_process_and_its_children() -> None:
    before = cpu_seconds(os.getpid())
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    assert cpu_seconds(os.getpid()) >= before + 0.05
    assert resident(os.getpid()) > 1_000_000
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        # Other tests' fleets may be running at the same time.
        mine = family(os.getpid())
        assert (mine[0], mine.count(child.pid)) == (os.getpid(), 1)
        assert family(child.pid) == [child.pid]
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
