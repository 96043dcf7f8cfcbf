"""The engine process: ``python -m worker.engine.child OPTIONS``, started by
:class:`worker.engine.handle.EngineProcess`.

A single thread receives commands and steps the engine: the pipeline's calls hold the GIL and must not overlap.
"""

import gc
import sys
import time
from pkgutil import resolve_name
from typing import NoReturn

import msgspec

from shared.protocol.errors import RequestRefused
from shared.runtime.placement import run_on
from worker.engine.backends import BACKENDS
from worker.engine.options import EngineOptions
from worker.engine.protocol import (
    Add,
    Cancel,
    Command,
    Engine,
    EngineBroken,
    EngineLoadError,
    EngineReport,
    Loading,
    Preempt,
    Ready,
    SequenceRefused,
    Stepped,
)
from worker.processes.channel import ChildChannel
from worker.processes.messages import LoadFailed

Channel = ChildChannel[Command, EngineReport]

_REPORT_INTERVAL = 0.25
"""Seconds without outputs after which an empty report is sent, so that a long prefill is not taken for a hang."""

_QUIET = 0.2
"""Seconds without a command after which the engine makes a part of what loading has left for later."""

_GAUGES_MAX_AGE = 0.1
"""Seconds for which gauges are reused. Reading the pipeline's metrics adds 40 µs to a step."""


def main() -> int:
    """Load the engine and run it until the supervisor ends it or dies. Returns the exit code."""
    gc.disable()  # loading makes millions of objects, and hardly any garbage
    backend = BACKENDS[msgspec.json.decode(sys.argv[1], type=EngineOptions).engine]
    options = msgspec.json.decode(sys.argv[1], type=resolve_name(backend.options))
    run_on(frozenset(options.cpus))
    channel: Channel = ChildChannel.inherited(msgspec.msgpack.Decoder(Command))
    try:
        engine: Engine = resolve_name(backend.engine)(options, lambda stage: channel.send(Loading(stage)))
        channel.send(Ready(engine.engine_info))
        # The vocabulary lives as long as the process: exclude it from garbage collections between steps.
        gc.freeze()
        gc.enable()
        serve(engine, channel)
    except EngineLoadError as error:
        channel.send(LoadFailed(str(error)))
        return 1
    except (EOFError, ConnectionError):
        return 0  # the supervisor has closed the channel or died
    except EngineBroken as error:
        print(error, file=sys.stderr)
        return 1


def serve(engine: Engine, channel: Channel) -> NoReturn:
    """Run the step loop.

    Raises :class:`EOFError` or :class:`ConnectionError` when the supervisor has closed the channel or died, and
    :class:`~worker.engine.protocol.EngineBroken` when the engine can't continue.
    """
    gauges = engine.gauges()
    gauged_at = last_report = time.monotonic()
    at_rest, parts, is_loaded = True, engine.finish_loading(), False
    while True:
        busy = engine.busy()
        if not busy and not at_rest:
            gauges, gauged_at = engine.gauges(), time.monotonic()
            channel.send(Stepped((), gauges))
            at_rest = True
        commands = channel.receive(0 if busy else None if is_loaded else _QUIET)
        if not (busy or commands):
            is_loaded = next(parts, True)
        for command in commands:
            match command:
                case Add(sequence):
                    try:
                        engine.add(sequence)
                    except RequestRefused as refusal:
                        channel.send(SequenceRefused(sequence.number, refusal.problem))
                case Cancel(number):
                    engine.cancel(number)
                case Preempt(numbers):
                    engine.preempt(numbers)
        if not engine.busy():
            continue
        at_rest = False
        new = engine.step()
        outputs = (*engine.prompts(), *new)
        for refused in engine.refused():
            channel.send(refused)
        now = time.monotonic()
        if outputs or now - last_report > _REPORT_INTERVAL:
            if now - gauged_at > _GAUGES_MAX_AGE:
                gauges, gauged_at = engine.gauges(), now
            channel.send(Stepped(outputs, gauges))
            last_report = now


if __name__ == "__main__":
    sys.exit(main())
