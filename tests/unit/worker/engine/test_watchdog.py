"""When an engine's silence counts as a hang, by a clock of the tests' own."""

import pytest

from shared.protocol.request import Sampling
from shared.runtime.settings import EngineSettings
from worker.engine.handle import EngineProcess
from worker.engine.protocol import EngineSequence
from worker.engine.watchdog import MIN_TIMEOUT, RECENT_MINUTES, Watchdog
from worker.openvino.options import OpenVINOOptions

BOUND = 15.0


class Clock:
    """A clock that is advanced by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watchdog(clock: Clock) -> Watchdog:
    return Watchdog(BOUND, clock=clock)


def watch(watchdog: Watchdog, clock: Clock, seconds: float) -> float:
    """Look every quarter of a second for so long; return the silence that is seen at the end."""
    for _ in range(round(seconds * 4)):
        clock.now += 0.25
        watchdog.silence()
    return watchdog.silence()


def step(watchdog: Watchdog, clock: Clock, seconds: float, *numbers: int) -> None:
    watch(watchdog, clock, seconds)
    watchdog.on_report(numbers)


def test_before_anything_is_known_a_step_has_the_whole_time(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.add(1, 10)
    assert watchdog.timeout == BOUND
    assert watch(watchdog, clock, 14) == 14


def test_short_steps_make_it_impatient(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.add(1, 10)
    step(watchdog, clock, 0.25, 1)
    assert watchdog.timeout == MIN_TIMEOUT
    assert watch(watchdog, clock, 3.25) > watchdog.timeout


def test_long_steps_make_it_patient_up_to_the_bound(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.add(1, 10)
    step(watchdog, clock, 1, 1)
    assert watchdog.timeout == 10
    step(watchdog, clock, 2, 1)
    assert watchdog.timeout == BOUND


def test_long_steps_are_forgotten_after_some_minutes(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.add(1, 10)
    step(watchdog, clock, 2, 1)
    watchdog.add(2, 10)
    for _ in range(RECENT_MINUTES + 1):
        watch(watchdog, clock, 59.75)
        watchdog.discard(1)
        watchdog.discard(2)
        watchdog.add(2, 10)
        step(watchdog, clock, 0.25, 2)
    assert watchdog.timeout == MIN_TIMEOUT


def test_after_a_long_rest_nothing_is_known(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.add(1, 10)
    step(watchdog, clock, 0.25, 1)
    watchdog.discard(1)
    clock.now += 3600
    watchdog.add(2, 10)
    assert watchdog.timeout == BOUND


def test_a_longer_prompt_than_ever_has_the_whole_time_and_the_next_like_it_has_not(
    watchdog: Watchdog, clock: Clock
) -> None:
    watchdog.add(1, 10)
    step(watchdog, clock, 0.25, 1)
    watchdog.add(2, 4000)
    for _ in range(8):
        assert watchdog.timeout == BOUND
        step(watchdog, clock, 0.25, 1)
    step(watchdog, clock, 0.25, 1, 2)
    assert watchdog.timeout == MIN_TIMEOUT
    watchdog.add(3, 4000)
    assert watchdog.timeout == MIN_TIMEOUT


def test_what_comes_after_the_engine_fell_silent_is_no_excuse(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.add(1, 10)
    step(watchdog, clock, 0.25, 1)
    watch(watchdog, clock, 2.5)
    watchdog.add(2, 4000)
    assert watchdog.timeout == MIN_TIMEOUT
    # It was only slow: now the new one may be in the next step.
    watchdog.on_report([1])
    assert watchdog.timeout == BOUND


def test_an_idle_engine_may_be_silent(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.add(1, 10)
    step(watchdog, clock, 0.25, 1)
    watchdog.discard(1)
    assert watch(watchdog, clock, 60) == 0
    watchdog.add(2, 10)
    assert watchdog.silence() == 0


def test_time_in_which_the_supervisor_was_stopped_is_not_the_engines(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.add(1, 10)
    step(watchdog, clock, 0.25, 1)
    clock.now += 60
    assert watchdog.silence() < watchdog.timeout
    watchdog.on_report([1])
    assert watchdog.timeout < BOUND


def test_the_bound_holds_even_below_the_least_patience(clock: Clock) -> None:
    watchdog = Watchdog(1.0, clock=clock)
    watchdog.add(1, 10)
    step(watchdog, clock, 0.25, 1)
    assert watchdog.timeout == 1.0


def test_waiting_for_a_cpu_is_no_silence(clock: Clock) -> None:
    watchdog = Watchdog(BOUND, clock=clock, cpu_time=lambda elapsed: elapsed / 10)
    watchdog.add(1, 10)
    step(watchdog, clock, 0.25, 1)
    assert watch(watchdog, clock, 20) == pytest.approx(2)
    assert watchdog.silence() < watchdog.timeout


def test_images_get_the_time_that_encoding_them_may_take(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.add(1, 10)
    step(watchdog, clock, 0.1, 1)
    assert watchdog.timeout == MIN_TIMEOUT
    watchdog.add(2, 5, encoding=64.0)
    watchdog.add(3, 5, encoding=20.0)
    assert watchdog.timeout == MIN_TIMEOUT + 64.0
    watchdog.discard(2)
    assert watchdog.timeout == MIN_TIMEOUT + 20.0
    watchdog.on_report([1])
    assert watchdog.timeout == MIN_TIMEOUT + 20.0
    watchdog.on_report([3])
    assert watchdog.timeout == MIN_TIMEOUT


@pytest.mark.parametrize(("draft", "seconds"), [("", 15.0), ("draft", 15.0 + 1000.0)])
def test_a_whole_prompt_in_one_step_gets_its_time(draft: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EngineSettings(draft_model=draft)
    options = OpenVINOOptions.from_settings(settings, path="model", context_length=9000)
    engine = EngineProcess(options, step_timeout=15, on_stepped=print, on_refused=print, on_loading=print)
    monkeypatch.setattr(engine, "send", lambda command: None)
    engine.add(EngineSequence(number=1, prompt=(5,) * 8000, sampling=Sampling()))
    assert engine.watchdog.timeout == pytest.approx(seconds)
