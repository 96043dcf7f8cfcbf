"""When a process's periodic work falls due."""

import time

import pytest

from shared.runtime.ticks import next_tick


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_beats_follow_each_other_by_their_period(clock: list[float]) -> None:
    clock[0] += next_tick(0.5)
    for _ in range(10):
        rest = next_tick(0.5)
        assert rest == pytest.approx(0.5)
        clock[0] += rest


def test_beats_of_multiples_fall_together(clock: list[float]) -> None:
    clock[0] += next_tick(2.0)
    assert next_tick(0.5) == pytest.approx(0.5)
    clock[0] += 4 * next_tick(0.5)
    assert next_tick(2.0) == pytest.approx(2.0)


def test_a_timer_that_fires_early_does_not_beat_twice(clock: list[float]) -> None:
    clock[0] += next_tick(1.0) - 0.002
    assert next_tick(1.0) == pytest.approx(1.002)
