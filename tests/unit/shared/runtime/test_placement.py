"""Process placement: which process runs on which CPU when the engine computes on CPUs."""

import os
import sys
from collections.abc import Iterator

import msgspec
import pytest

from shared.runtime.children import Child
from shared.runtime.placement import cpus_for_others, own_cpus, run_on
from shared.runtime.settings import EngineSettings
from tests.support.engine_reports import ReportingEngine
from worker.engine.backends import computes_on_cpus
from worker.simulated.engine import SimulatedOptions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the CPUs of a process")


@pytest.fixture
def here() -> Iterator[frozenset[int]]:
    """This process's CPUs, which it has again afterwards."""
    before = own_cpus()
    yield before
    run_on(before)


@pytest.mark.parametrize(("cpus", "left"), [({0, 1}, {1}), ({5, 3, 4}, {4, 5}), ({7}, {7}), (set(), set())])
def test_all_but_the_first_are_left_to_others(cpus: set[int], left: set[int]) -> None:
    assert cpus_for_others(cpus) == left


def test_a_process_stays_on_its_cpus(here: frozenset[int]) -> None:
    run_on({max(here)})
    assert own_cpus() == {max(here)}
    run_on(frozenset())
    assert own_cpus() == {max(here)}


def test_a_cpu_that_is_not_ours_moves_nothing(here: frozenset[int]) -> None:
    run_on({4095})
    assert own_cpus() == here


async def test_the_engine_has_all_of_its_cpus_though_its_supervisor_steps_aside(here: frozenset[int]) -> None:
    settings = EngineSettings(engine="simulated")
    options = SimulatedOptions.from_settings(settings, path="", context_length=100, cpus=here)
    run_on({max(here)})
    for cpus, expected in ((options.cpus, here), ((), {max(here)})):
        process = ReportingEngine(msgspec.structs.replace(options, cpus=cpus))
        await process.start()
        await process.loaded()
        assert process.pid is not None
        assert os.sched_getaffinity(process.pid) == expected
        await process.stop()


async def test_what_up_starts_keeps_to_its_cpus(here: frozenset[int]) -> None:
    child = Child("sleeper", ["sleep", "60"], cpus=frozenset({max(here)}))
    await child.start()
    assert child.pid is not None
    assert os.sched_getaffinity(child.pid) == {max(here)}
    child.kill()
    await child.wait()


@pytest.mark.parametrize(
    ("fields", "computes"),
    [({}, True), ({"device": "CPU"}, True), ({"device": "GPU.1"}, False), ({"engine": "simulated"}, False)],
)
def test_only_an_engine_on_cpus_is_made_way_for(fields: dict[str, str], computes: bool) -> None:
    assert computes_on_cpus(EngineSettings.model_validate(fields)) is computes
