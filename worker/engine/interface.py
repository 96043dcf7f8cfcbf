"""What an engine is, and the messages between the supervisor and the engine's process.

The engine process steps; the supervisor claims and publishes. They talk in MessagePack over a socket
pair: commands one way, reports the other. Numbers name sequences here, because the engine wants
numbers; the supervisor maps them to jobs and never uses one twice in a process's life.
"""

from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from shared.protocol.errors import Problem
from shared.protocol.events import Alternative, Delta
from shared.protocol.request import Constraint, Sampling
from worker.grammar.lengths import Bounded

StopReason = Literal["stop", "length", "exhausted", "cancelled"]
"""``exhausted``: the KV cache could not hold the sequence to its end."""


class Sequence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A generation to run.

    ``prompt`` holds token ids. ``generated`` holds the ids that an earlier attempt already produced and
    published: generation goes on behind them, and positions count them. ``sampling`` is complete as far
    as the request and the model's defaults go; its seed is always set. A beam search (``sampling.beams`` above 1)
    returns its best ``alternatives`` texts and is never resumed. ``shown_tokens`` are special tokens that
    stay in the text where special tokens are left out of it. ``free_until`` are texts before the first of which the
    constraint allows anything; without any, it holds from the start. ``bounded`` are values whose strings have a
    greatest length; a string that exceeds it ends the sequence.
    """

    number: int
    prompt: tuple[int, ...]
    sampling: Sampling
    generated: tuple[int, ...] = ()
    constraint: Constraint | None = None
    shown_tokens: tuple[int, ...] = ()
    free_until: tuple[str, ...] = ()
    bounded: tuple[Bounded, ...] = ()
    alternatives: int = 1


DeltaT = TypeVar("DeltaT")
"""A sequence's new output: a :class:`~shared.protocol.events.Delta` or ``None`` in the engine process; its encoding,
forwarded without decoding, in the supervisor."""


class Output(msgspec.Struct, Generic[DeltaT], frozen=True, array_like=True):
    """What one step made of one sequence.

    ``end`` is the number of tokens in the whole generation so far. The text in ``news`` is what may be shown now:
    complete characters, and nothing that could yet turn out to be a stop string. ``reason`` is set with the last
    output.
    """

    number: int
    end: int
    news: DeltaT
    reason: StopReason | None = None
    alternatives: tuple[Alternative, ...] = ()
    """The texts of a beam search, best first; it has one output, at its end, with nothing else in it."""


StepOutput = Output[Delta | None]
"""An output as the engine makes it."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of a loaded engine. ``context_length`` and ``cache_tokens`` are in tokens, ``slots`` in sequences.

    ``stated`` names the fields of the sampling for which the model brings defaults of its own.
    """

    context_length: int
    cache_tokens: int
    slots: int
    fingerprint: str
    device: str
    load_seconds: float
    stated: tuple[str, ...] = ()


class Gauges(msgspec.Struct, frozen=True, array_like=True):
    """The engine's own numbers after a step. ``cache_usage`` is a share from 0 to 1.

    ``computing`` and ``between`` are seconds since the start: inside the model's steps, and from each one's end to the
    next one's begin while there was work. The second is what everything around the model costs it.
    """

    requests: int
    scheduled: int
    cache_usage: float
    cache_bytes: int
    steps: int
    tokens: int
    computing: float = 0.0
    between: float = 0.0


class EngineRefusal(Exception):
    """The engine can't run this sequence; the others go on."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class EngineBroken(Exception):
    """The engine can't go on with any sequence: its process must be replaced."""


class EngineLoadError(Exception):
    """The model can't be loaded; the message tells why, for people."""


class Engine(Protocol):
    """One loaded model. All calls come from the one thread that steps."""

    engine_info: EngineInfo

    def add(self, sequence: Sequence) -> None:
        """Take a sequence into the batch. Raises :class:`EngineRefusal`, harming no other sequence."""

    def cancel(self, number: int) -> None:
        """Drop a sequence: it takes no part in the next step, and its KV cache is free after it."""

    def step(self) -> list[StepOutput]:
        """Advance every sequence; return what is new, at most one output a sequence. Cheap when idle.

        Raises :class:`EngineBroken` when no sequence can go on.
        """

    def refused(self) -> list["Refused"]:
        """Return, once, the sequences that turned out in a step to break the engine; they are gone already."""

    def busy(self) -> bool:
        """Whether a step would do anything: sequences are running or cancelled ones not yet cleared away."""

    def gauges(self) -> Gauges:
        """The engine's own numbers."""


# Commands, from the supervisor to the engine process.


class Add(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Start a sequence."""

    sequence: Sequence


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Drop a sequence."""

    number: int


class Quit(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """End the process."""


Command = Add | Cancel | Quit

# Reports, from the engine process to the supervisor.


class Loading(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A stage of loading has begun; for people."""

    stage: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Loaded and warm."""

    engine_info: EngineInfo


class LoadFailed(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The model can't be loaded; the process ends."""

    message: str


class Stepped(msgspec.Struct, Generic[DeltaT], frozen=True, array_like=True, tag=4):
    """A step is done that had outputs, or a quarter of a second of steps without any (long prompts).

    Also sent once when the engine becomes idle, so that the gauges come to rest; before, they may be a little old.
    """

    outputs: tuple[Output[DeltaT], ...]
    gauges: Gauges


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A sequence could not be added, or broke the engine in a later step and was taken out, perhaps after outputs."""

    number: int
    problem: Problem


Report = Loading | Ready | LoadFailed | Stepped[DeltaT] | Refused

EngineReport = Report[Delta | None]
"""A report as the engine's process sends it."""

RawEngineReport = Report[msgspec.Raw]
"""A report as the supervisor receives it."""

RawStep = Stepped[msgspec.Raw]
"""A step among those."""

EMPTY_DELTA_BYTES = len(msgspec.msgpack.encode(None))
"""Bytes that encoded news have when there are none; a delta has more."""
