"""The record of a batch."""

import re
import uuid
from typing import Literal

import msgspec

BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]
Outcome = Literal["completed", "expired", "cancelled", "failed"]
"""Final status of a batch whose file was valid."""

COMPLETION_WINDOW = 86_400
"""Seconds in which the batch requests must be served: OpenAI's only value of ``completion_window``, 24h."""

UNFINISHED: frozenset[BatchStatus] = frozenset({"validating", "in_progress", "finalizing"})

_ID = re.compile(r"batch_[0-9a-f]{32}")


class LineError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error in the input file. ``line`` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Results written under one lease: the first ``size`` bytes of a file named after the lease's epoch."""

    epoch: int
    size: int


class BatchCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    total: int = 0
    completed: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0


class Batch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch, as in the store. Times are Unix seconds; ``owner`` is the id of an API key, or empty without one."""

    id: str
    owner: str
    endpoint: str
    input_file: str
    created: int
    expires: int
    metadata: dict[str, str] | None = None
    retention: int
    """For how many seconds the result files are kept."""
    status: BatchStatus = "validating"
    times: dict[BatchStatus, int] = {}
    """When the batch got each status."""
    errors: tuple[LineError, ...] = ()
    failures: int = 0
    """How often feeding it failed unexpectedly since its last result."""
    model: str | None = None
    """The model, if all requests name the same one."""
    counts: BatchCounts = BatchCounts()
    segments: tuple[Segment, ...] = ()
    outcome: Outcome | None = None
    """Final status, set while the batch is being finalized."""
    output_file: str | None = None
    error_file: str | None = None

    def at(self, status: BatchStatus, now: float) -> "Batch":
        return msgspec.structs.replace(self, status=status, times=self.times | {status: int(now)})


def new_batch_id() -> str:
    return f"batch_{uuid.uuid4().hex}"


def is_batch_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def segment_name(batch_id: str, epoch: int) -> str:
    """Return the name in the storage of a batch's segment."""
    return f"{batch_id}.{epoch}"
