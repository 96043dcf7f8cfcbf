"""The engine's process: ``python -m worker.engine.child OPTIONS``.

:class:`worker.engine.process.EngineProcess` starts it. One thread takes commands and steps, because the
pipeline's calls hold the GIL and must not overlap.
"""

import gc
import os
import sys
import time
from collections.abc import Callable

import msgspec

from shared.runtime.placement import run_on
from worker.engine.interface import (
    Add,
    Cancel,
    Command,
    Engine,
    EngineBroken,
    EngineLoadError,
    EngineRefusal,
    EngineReport,
    LoadFailed,
    Loading,
    Quit,
    Ready,
    Refused,
    Stepped,
)
from worker.engine.options import EngineOptions
from worker.ipc import ChildChannel

Channel = ChildChannel[Command, EngineReport]

_LONGEST_SILENCE = 0.25
"""Seconds of stepping without outputs after which a report is due all the same: a long prompt is no hang."""

_GAUGES_AGE = 0.1
"""Seconds for which gauges are good: asking the pipeline takes 40 µs that a step would wait for each time."""


def main() -> int:
    """Load the engine and run it until the parent says so or goes away. Returns the exit code."""
    options = msgspec.json.decode(sys.argv[1], type=EngineOptions)
    run_on(frozenset(options.cpus))
    channel: Channel = ChildChannel.inherited(msgspec.msgpack.Decoder(Command))
    # The native library prints what it likes to standard output, which belongs to the command's own answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        engine = _load(options, lambda stage: channel.send(Loading(stage)))
        channel.send(Ready(engine.engine_info))
        # A vocabulary is for ever; the collector need not look through it between two steps.
        gc.freeze()
        serve(engine, channel)
    except EngineLoadError as error:
        channel.send(LoadFailed(str(error)))
        return 1
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has gone, and with it everybody who could want an answer
    except EngineBroken as error:
        print(f"vinoqueue engine: {error}", file=sys.stderr)
        return 1
    return 0


def _load(options: EngineOptions, progress: Callable[[str], None]) -> Engine:
    if options.engine == "simulated":
        from worker.engine.simulated import SimulatedEngine

        return SimulatedEngine(options, progress)
    # Imported here, so that the simulated engine runs where OpenVINO is not installed.
    from worker.engine.openvino import OpenVINOEngine

    return OpenVINOEngine(options, progress)


def serve(engine: Engine, channel: Channel) -> None:
    """Run the step loop until :class:`Quit`.

    Raises :class:`EOFError` or :class:`ConnectionError` when the parent has gone, and
    :class:`~worker.engine.interface.EngineBroken` when the engine can't go on.
    """
    gauges = engine.gauges()
    gauged_at = last_report = time.monotonic()
    at_rest = True
    while True:
        busy = engine.busy()
        if not busy and not at_rest:
            gauges, gauged_at = engine.gauges(), time.monotonic()
            channel.send(Stepped((), gauges))
            at_rest = True
        for command in channel.receive(0 if busy else None):
            match command:
                case Add(sequence):
                    try:
                        engine.add(sequence)
                    except EngineRefusal as refusal:
                        channel.send(Refused(sequence.number, refusal.problem))
                case Cancel(number):
                    engine.cancel(number)
                case Quit():
                    return
        if not engine.busy():
            continue
        at_rest = False
        outputs = engine.step()
        for refused in engine.refused():
            channel.send(refused)
        now = time.monotonic()
        if outputs or now - last_report > _LONGEST_SILENCE:
            if now - gauged_at > _GAUGES_AGE:
                gauges, gauged_at = engine.gauges(), now
            channel.send(Stepped(tuple(outputs), gauges))
            last_report = now


if __name__ == "__main__":
    sys.exit(main())
