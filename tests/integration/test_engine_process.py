"""The engine's own process: reports, refusals, deaths and hangs, as the supervisor sees them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from shared.protocol.events import Delta
from shared.protocol.request import Sampling
from shared.runtime.settings import EngineSettings
from tests.support.engine_outputs import deltas_of, text_of
from tests.support.engine_reports import ReportingEngine
from tests.support.eventually import eventually
from worker.engine.handle import CurrentEngine, EngineSupervisor
from worker.engine.protocol import EngineSequence, Output, RawStep, SequenceRefused, StepOutput, Stepped
from worker.processes.child import LoadError
from worker.simulated.engine import SimulatedOptions, encode


def options(path: str = "") -> SimulatedOptions:
    settings = EngineSettings(engine="simulated", sim_step=0.001)
    return SimulatedOptions.from_settings(settings, path=f"[[tokens 6]] {path}", context_length=1000)


def sequence(number: int, text: str) -> EngineSequence:
    return EngineSequence(number=number, prompt=encode(text), sampling=Sampling())


def unpacked(report: RawStep) -> list[StepOutput]:
    """The outputs as the engine made them."""
    decode = msgspec.msgpack.Decoder[Delta | None](Delta | None).decode
    return [Output(one.number, one.end, decode(one.delta), one.reason) for one in report.outputs]


@pytest.fixture
async def engine() -> AsyncIterator[ReportingEngine]:
    process = ReportingEngine(options())
    await process.start()
    await process.loaded()
    yield process
    await process.stop()


async def test_loading_reports_its_stages_and_then_the_engine_info() -> None:
    stages: list[str] = []
    process = ReportingEngine(options(), stages.append)
    await process.start()
    engine_info = (await process.loaded()).engine_info
    assert engine_info.context_length == 1000
    assert stages
    assert process.exit_code is None
    await process.stop()
    assert process.exit_code == 0


async def nothing() -> None:
    pass


def supervise(
    engine_options: SimulatedOptions, current: CurrentEngine, others_loaded: Callable[[], Awaitable[None]]
) -> EngineSupervisor:
    """Return a supervisor whose reports nobody reads."""
    return EngineSupervisor(
        engine_options,
        current,
        step_timeout=60.0,
        on_stepped=lambda report: None,
        on_refused=lambda report: None,
        on_change=lambda: None,
        release_jobs=nothing,
        others_loaded=others_loaded,
        check_model=lambda vocabulary, fingerprint: None,
    )


async def test_an_engine_serves_when_what_it_needs_has_loaded_too() -> None:
    current = CurrentEngine(slots=1)
    asked, loaded = asyncio.Event(), asyncio.Event()

    async def others_loaded() -> None:
        asked.set()
        await loaded.wait()

    supervisor = supervise(options(), current, others_loaded)
    running = asyncio.create_task(supervisor.run())
    await asked.wait()
    assert current.status == "loading"
    loaded.set()
    assert (await current.wait()).info.context_length == 1000
    await supervisor.stop()
    await running


async def test_outputs_come_in_order_and_the_gauges_come_to_rest(engine: ReportingEngine) -> None:
    engine.add(sequence(1, "[[say hey]]"))
    engine.add(sequence(2, "[[refuse]]"))
    outputs: list[StepOutput] = []
    refused: list[int] = []
    async for report in engine.reports():
        if isinstance(report, SequenceRefused):
            refused.append(report.number)
        else:
            outputs += unpacked(report)
            if report.gauges.requests == 0 and not report.outputs:
                break
    assert text_of(outputs) == "hey"
    assert outputs[-1].reason == "stop"
    assert refused == [2]
    assert engine.watchdog.silence() == 0


async def test_a_cancelled_sequence_says_no_more(engine: ReportingEngine) -> None:
    engine.add(sequence(1, "[[tokens 100000]]"))
    async for report in engine.reports():
        assert isinstance(report, Stepped)
        if report.outputs:
            engine.cancel(1)
        if not report.outputs:
            assert report.gauges.requests == 0
            break


async def test_a_crash_ends_the_reports_after_all_that_was_made_before(engine: ReportingEngine) -> None:
    engine.add(sequence(1, "[[crash at 3]]"))
    made = [output async for report in engine.reports() if isinstance(report, Stepped) for output in unpacked(report)]
    assert [delta.position for delta in deltas_of(made)] == [0, 1, 2]
    assert engine.exit_description == "was killed by SIGKILL"


async def test_a_sequence_that_crashed_an_engine_goes_on_behind_the_crash(engine: ReportingEngine) -> None:
    prompt = encode("[[crash at 3]] [[say abcdef]]")
    engine.add(EngineSequence(number=1, prompt=prompt, generated=encode("abc"), sampling=Sampling()))
    text = ""
    async for report in engine.reports():
        assert isinstance(report, Stepped)
        text += text_of(unpacked(report))
        if report.outputs and report.outputs[0].reason:
            break
    assert text == "def"


async def test_a_hang_shows_as_silence_and_can_be_killed(engine: ReportingEngine) -> None:
    engine.add(sequence(1, "[[hang at 2]]"))
    made = 0

    async def watchdog() -> None:
        await eventually(lambda: made == 2 and engine.watchdog.silence() >= 0.3, "silence")
        engine.kill()

    watching = asyncio.create_task(watchdog())
    async for report in engine.reports():
        assert isinstance(report, Stepped)
        made += len(report.outputs)
    await watching
    assert made == 2
    assert engine.exit_code == -9


async def test_a_model_that_cannot_be_loaded_says_why() -> None:
    process = ReportingEngine(options("[[fail load]]"))
    await process.start()
    with pytest.raises(LoadError, match="can't be loaded"):
        await process.loaded()
    await process.stop()
    assert process.exit_code == 1


async def test_a_process_that_dies_while_loading_is_a_load_error() -> None:
    process = ReportingEngine(options("[[crash load]]"))
    await process.start()
    with pytest.raises(LoadError, match="SIGKILL"):
        await process.loaded()


async def test_a_process_that_is_killed_within_a_memory_limit_names_limit_and_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.engine.handle.memory_limit", lambda: 400 * 2**20)

    supervisor = supervise(options("[[crash load]]"), CurrentEngine(slots=1), nothing)
    with pytest.raises(LoadError, match=r"SIGKILL while it loaded, .* may use 400 MB .* needs about 700 MB"):
        await supervisor.run()


async def test_a_process_that_is_stopped_while_it_loads_ends_in_peace() -> None:
    process = ReportingEngine(options())
    await process.start()
    await process.stop(patience=60)
    assert process.exit_code == 0
