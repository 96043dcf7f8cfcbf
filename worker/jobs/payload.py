"""What a claimed job brings: its payload, and the tokens of earlier attempts in its journal.

A payload that can't be read becomes a dead letter, which is kept in the store for inspection.
"""

import logging
from collections.abc import Iterable

import msgspec
from arq.jobs import DeserializationError, deserialize_job_raw

from shared.protocol.cost import prompt_cost
from shared.protocol.errors import Problem, ProblemKind, refuse
from shared.protocol.events import Delta, Event, PromptLogprobs, Rejected, encode_event
from shared.protocol.queue import JOB_FUNCTION, Claim, JobQueue
from shared.protocol.request import Job, QueuedJob, decode_job
from shared.protocol.version import READABLE
from shared.redis import keys
from shared.redis.records import UNREADABLE, report_unreadable
from worker.jobs.request_cache import RequestGone

logger = logging.getLogger(__name__)

_RETRY_LATER = 5.0
"""``Retry-After`` in seconds for a job of another version."""

UNREADABLE_JOB = (DeserializationError, KeyError, IndexError, TypeError, RequestGone, *UNREADABLE)
"""Exceptions raised by a job that is corrupt, or of another version."""

_decode = msgspec.msgpack.Decoder().decode


class OtherProtocol(ValueError):
    """A job of a protocol version that this worker does not read."""

    def __init__(self, protocol: int) -> None:
        super().__init__(f"its protocol version is {protocol}, this worker reads {READABLE}")


def read_payload(claim: Claim) -> QueuedJob:
    """Return the job in arq's payload. Raises one of :data:`UNREADABLE_JOB`."""
    function, arguments, _, _, _ = deserialize_job_raw(claim.payload, deserializer=_decode)
    if function != JOB_FUNCTION:
        raise ValueError(f"it calls the function {str(function)[:64]!r}")
    queued = decode_job(arguments[0])
    if queued.id != claim.job:
        raise ValueError(f"its id is {queued.id[:64]!r}")
    return queued


def check_protocol(queued: QueuedJob) -> None:
    """Raise :class:`OtherProtocol` if the job has a protocol version that this worker does not read."""
    if queued.protocol not in READABLE:
        raise OtherProtocol(queued.protocol)


async def move_to_dead_letters(
    queue: JobQueue, worker: str, claim: Claim, error: Exception, *, reply_to: str = ""
) -> Event:
    """Move an unreadable job to the dead letters, so that it is not retried, and end it for its client.

    Does nothing when ``worker`` has lost the lease. ``reply_to`` is the job's replica, if that much can be read.
    Returns the job's terminal event. Raises :class:`redis.exceptions.RedisError` or :class:`OSError` when the store is
    unreachable.
    """
    logger.error("unreadable job %s moves to the dead letters: %r", claim.job, error)
    event = Rejected(_problem(error))
    await queue.move_to_dead_letters(worker, claim, encode_event(event), reply_to=reply_to)
    return event


def _problem(error: Exception) -> Problem:
    if isinstance(error, OtherProtocol):
        return Problem(
            kind=ProblemKind.NO_WORKER,
            message="The model is being upgraded: the worker that got this request reads another protocol version. "
            "Please try again later.",
            retry_after=_RETRY_LATER,
        )
    return Problem(
        kind=ProblemKind.LOST, message="The worker can't read this request from the store. Please send it again."
    )


def read_history(claim: Claim) -> tuple[tuple[int, ...], bool]:
    """Return the tokens that earlier attempts published, and whether they published the prompt's log probabilities.

    Raises :class:`RequestRefused` for a damaged journal.
    """
    try:
        history = claim.history()
        return generated_tokens(history), any(isinstance(event, PromptLogprobs) for event in history)
    except UNREADABLE as error:
        report_unreadable(keys.journal(claim.job), error)
        raise refuse(
            ProblemKind.LOST,
            "The response cannot be continued: its journal in the store is damaged. Please send the request again.",
        ) from None


def generated_tokens(history: Iterable[Event]) -> tuple[int, ...]:
    """Return the token ids that earlier attempts published, in order.

    A repeated delta counts once: a publication is sent again when its reply was lost.
    Raises :class:`ValueError` for a gap.
    """
    tokens: list[int] = []
    for event in history:
        if isinstance(event, Delta):
            if event.position > len(tokens):
                raise ValueError(f"journal lacks the tokens {len(tokens)} to {event.position - 1}")
            tokens += event.tokens[len(tokens) - event.position :]
    return tuple(tokens)


def summary(job: Job) -> str:
    """Describe ``job`` in one line by its sizes and settings, without prompts, schemas, names or words to avoid."""
    request, sampling = job.request, msgspec.to_builtins(job.request.sampling)
    sampling |= {name: len(sampling[name]) for name in ("stop", "bad_words") if name in sampling}
    parts = [
        f"model {request.model}",
        f"key {job.tenant or 'none'}",
        type(request.work).__name__,
        f"{len(request.messages)} messages" if request.messages else f"{len(request.prompts)} prompts",
        f"about {prompt_cost(request)} tokens",
        f"{len(request.tools)} tools",
        f"n {request.n}",
        f"sampling {msgspec.json.encode(sampling).decode()}",
    ]
    if request.constraint is not None:
        parts.append(f"constrained by a {request.constraint.kind} of {len(request.constraint.value)} characters")
    return ", ".join(parts)


def full_request(job: Job) -> str:
    """Return the complete request of ``job`` as JSON in one line."""
    return msgspec.json.encode(job.request).decode()
