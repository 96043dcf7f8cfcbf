"""One attempt at a job: its identity in all parts of the worker, and its progress."""

import asyncio
import time
from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

from shared.protocol.errors import Problem
from shared.protocol.events import Event, Failed, MoveCause, Rejected, Started, encode_event
from shared.protocol.queue import Claim, Lease
from shared.protocol.request import ChatRequest, QueuedJob, Sampling
from worker.engine.handle import EngineProcess
from worker.engine.protocol import EngineSequence

SUSPECT_LOST_WORKERS = 2
"""Lost workers from which on a request is a suspect. More than one, because workers disappear for other reasons."""

_NOT_STARTED = Started(worker="", prompt_tokens=0, fingerprint="")
_NOT_PREPARED = EngineSequence(number=0, prompt=(), sampling=Sampling())


class StopCause(Enum):
    """Why an attempt was stopped before its end."""

    CANCELLED = auto()
    """Its client has disconnected, or has cancelled it."""
    ABANDONED = auto()
    """This worker lost its lease or returns it. Another attempt continues the job."""


class Hold:
    """What an attempt holds since it has passed a gate (:mod:`worker.jobs.gates`): here, nothing."""

    def progress(self, tokens: int) -> bool:
        """Handle an output, after which the job has ``tokens`` tokens. Returns whether the next one matters, too."""
        return False

    def leave(self) -> None:
        """End the hold, if it has not ended. Always called at the attempt's end."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt at a job. ``number`` names its sequence in the engine process."""

    claim: Claim
    queued: QueuedJob
    """The job, as its payload has it."""
    number: int
    task: asyncio.Task[None]
    lease: Lease = field(init=False)
    request: ChatRequest | None = None
    """The job's request, once it was read."""
    sequence: EngineSequence = _NOT_PREPARED
    """What the engine gets."""
    holds: list[Hold] = field(default_factory=list)
    """Those of its holds for which its next output matters."""
    engine: EngineProcess | None = None
    """The engine process that gets its sequence."""
    in_quarantine: bool = False
    """Whether it is the suspect that runs (:mod:`worker.jobs.gates.quarantine`)."""
    claimed_at: float = field(default_factory=time.monotonic)
    """When it was claimed (monotonic seconds)."""
    added_at: float = 0.0
    """When the engine got its sequence; 0 before."""
    first_output_at: float = 0.0
    """When its first output arrived; 0 before."""
    tokens: int = 0
    """Number of the job's tokens at its last output."""
    started_event: Started = _NOT_STARTED
    """Its started event, published with the first output."""
    terminal_event: Event | None = None
    """The event with which the job has ended."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the terminal event."""
    stopped: StopCause | None = None
    release_cause: MoveCause | None = None
    """Why this worker released it; None if it did not."""

    def __post_init__(self) -> None:
        self.lease = Lease(self.claim.job, self.claim.attempt, self.queued.reply_to)

    @property
    def is_batch(self) -> bool:
        return self.request is not None and self.request.tier == "batch"

    @property
    def is_patient(self) -> bool:
        """Whether its request is in one of the classes that are served last."""
        return self.request is not None and self.request.tier in ("batch", "flex")

    @property
    def is_suspect(self) -> bool:
        """Whether engines or workers may have ended because of its request."""
        return self.claim.crashes > 0 or self.claim.lost_workers >= SUSPECT_LOST_WORKERS

    @property
    def resumed(self) -> int:
        """Number of tokens from earlier attempts."""
        return len(self.sequence.generated)

    def encode_started(self, cached_tokens: int) -> bytes:
        """Complete and encode its started event, at its first output. ``cached_tokens`` of its prompt were cached."""
        self.first_output_at = time.monotonic()
        self.started_event = msgspec.structs.replace(
            self.started_event,
            cached_tokens=cached_tokens,
            prompt_seconds=round(self.added_at - self.claimed_at, 6),
            prefill_seconds=round(self.first_output_at - self.added_at, 6),
        )
        return encode_event(self.started_event)

    def progress(self, tokens: int) -> None:
        """Tell its holds of an output, after which the job has ``tokens`` tokens."""
        self.holds = [hold for hold in self.holds if hold.progress(tokens)]

    def failure(self, problem: Problem) -> Failed | Rejected:
        """Return the job's terminal event if it ends with ``problem``."""
        return Failed(problem) if self.first_output_at else Rejected(problem)
