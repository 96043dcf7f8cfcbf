"""Publishing over a line that the tests hold the other end of."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from arq.connections import ArqRedis
from redis.connection import DefaultParser
from redis.exceptions import ConnectionError, ResponseError

import worker.jobs.publisher
from shared.protocol.events import Delta, Finished, decode_frame, encode_event
from shared.protocol.queue import Emitter, JobQueue, Lease
from shared.redis import keys
from shared.redis.raw_connection import Argument, RawConnection
from shared.redis.reconnections import Reconnections
from tests.support.eventually import PATIENCE, eventually
from tests.support.job_rig import ActiveJobs, Attempt, attempt_of
from tests.support.jobs import REPLICA
from worker.engine.handle import CurrentEngine
from worker.jobs import draining
from worker.jobs.publisher import Publisher


class HeldLine:
    """Records what is sent, and replies on request."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.waiting: list[Any] = []
        self.opened = 0
        self.is_open = False
        self.broken = False
        self._callback: Callable[[], None] | None = None

    @property
    def watched(self) -> bool:
        return self._callback is not None

    async def open(self, *commands: tuple[str, ...]) -> None:
        self.opened += 1
        self.is_open, self.broken = True, False

    def send(self, *command: Argument) -> None:
        if self.broken:
            raise ConnectionError("broken")
        self.sent.append([part if isinstance(part, bytes) else str(part).encode() for part in command])

    def replies(self) -> list[Any]:
        if self.broken:
            raise ConnectionError("broken")
        replies, self.waiting = self.waiting, []
        return replies

    def answer(self, answer: Any) -> None:
        """Have an answer arrive."""
        self.waiting.append(answer)
        if self._callback is not None:
            self._callback()

    def watch(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def unwatch(self) -> None:
        self._callback = None

    def close(self) -> None:
        self.is_open, self._callback = False, None

    def frames(self) -> list[list[tuple[str, int]]]:
        """The jobs and positions of each call's only frame."""
        channel = keys.replica_channel(REPLICA).encode()
        return [
            [
                (entry.job, getattr(entry.event, "position", -1))
                for entry in decode_frame(command[command.index(channel) + 1])
            ]
            for command in self.sent
        ]


class Jobs:
    """The table of a worker's jobs, of whose four slots two are used."""

    def __init__(self, abandon: Callable[[Sequence[Lease]], None], cancel_replica: Callable[[str], None]) -> None:
        self.abandon = abandon
        self.cancel_replica = cancel_replica

    def __len__(self) -> int:
        return 2


class Rig:
    """A running publisher, with what it has reported to its worker."""

    def __init__(self) -> None:
        self.line = HeldLine()
        self.stale: list[Sequence[Lease]] = []
        self.orphaned: list[str] = []
        self.attempts: dict[str, Attempt] = {}
        jobs = Jobs(self.stale.append, self.orphaned.append)
        self.publisher = Publisher(
            Emitter("tiny", "w1"),
            cast(RawConnection, self.line),
            cast(ActiveJobs, jobs),
            CurrentEngine(slots=4),
            Reconnections(),
        )

    def step(self, position: int, *jobs: str) -> None:
        """Publish a token of each job."""
        for job in jobs:
            self.publisher.add(self.lease(job), encode_event(Delta(position, (7,), "x")))
        self.publisher.flush()

    def lease(self, job: str) -> Lease:
        """The lease of the first attempt at a job."""
        return self.attempt(job).lease

    def attempt(self, job: str) -> Attempt:
        """The first attempt at a job."""
        if job not in self.attempts:
            self.attempts[job] = attempt_of(job)
        return self.attempts[job]


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(worker.jobs.publisher, "_RETRY_DELAYS", (0.01,))
    rig = Rig()
    running = asyncio.create_task(rig.publisher.run())
    await eventually(lambda: rig.line.is_open)
    yield rig
    running.cancel()


async def test_a_step_is_one_call_and_its_reply_is_read_with_the_next(rig: Rig) -> None:
    rig.step(0, "a", "b")
    rig.line.waiting.append([1, 1])
    rig.step(1, "a", "b")
    assert rig.line.frames() == [[("a", 0), ("b", 0)], [("a", 1), ("b", 1)]]
    assert not rig.line.watched


async def test_what_comes_while_the_store_is_slow_goes_together_as_soon_as_it_replies(rig: Rig) -> None:
    rig.step(0, "a")
    rig.step(1, "a", "b")
    rig.step(2, "b")
    assert len(rig.line.sent) == 1
    rig.line.answer([1, 1])
    assert rig.line.frames()[1] == [("a", 1), ("b", 1), ("b", 2)]


async def test_the_last_reply_is_looked_for_though_nothing_follows(rig: Rig) -> None:
    rig.step(0, "a")
    await eventually(lambda: rig.line.watched)
    rig.line.answer([-1, b"a", 1])
    assert rig.stale == [[rig.lease("a")]]
    async with asyncio.timeout(PATIENCE):
        await rig.publisher.flushed()
    assert len(rig.line.sent) == 1


async def test_a_step_of_a_worker_whose_last_one_is_unknown_is_sent_again_with_all_leases(rig: Rig) -> None:
    for position, answer in enumerate(([0, 1], [1, 1])):
        rig.step(position, "a")
        rig.line.answer(answer)
    rig.step(2, "a")
    rig.line.answer([-1])
    await eventually(lambda: len(rig.line.sent) == 4)
    assert rig.line.frames()[2:] == [[("a", 2)]] * 2
    assert rig.line.sent[3][-2:] == [encode_event(Delta(position, (7,), "x")) for position in (1, 2)]
    assert rig.stale == [[]]


async def test_all_has_been_confirmed_when_it_is_flushed(rig: Rig) -> None:
    rig.publisher.end(rig.attempt("a"), Finished(0, "stop"))
    flushing = asyncio.create_task(rig.publisher.flushed())
    await eventually(lambda: bool(rig.line.sent))
    assert not flushing.done()
    rig.line.answer([1, 1])
    async with asyncio.timeout(PATIENCE):
        await flushing


async def test_what_jobs_have_generated_is_published_before_they_are_released(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "_CALL_TIMEOUT", PATIENCE)
    released: list[str] = []

    async def release(*_: object, **__: object) -> int:
        released.append("a")
        return 1

    jobs = SimpleNamespace(leases=lambda: [rig.lease("a")], suspects=frozenset, abandon=lambda *_: None)
    rig.step(0, "a")
    rig.step(1, "a")
    releasing = asyncio.create_task(
        draining.release_jobs(
            cast(JobQueue, SimpleNamespace(release=release)),
            rig.publisher,
            "w1",
            cast(ActiveJobs, jobs),
            cause="engine_lost",
        )
    )
    for number in range(2):
        await eventually(lambda number=number: len(rig.line.sent) > number)  # type: ignore[misc]
        await asyncio.sleep(0)
        assert released == []
        rig.line.answer([1, 1])
    await releasing
    assert rig.line.frames() == [[("a", 0)], [("a", 1)]]
    assert released == ["a"]


async def test_the_load_is_told_with_a_jobs_end(rig: Rig) -> None:
    rig.step(0, "a")
    rig.line.waiting.append([1, 1])
    rig.publisher.end(rig.attempt("a"), Finished(1, "stop"))
    await eventually(lambda: len(rig.line.sent) == 2)
    rig.line.waiting.append([1, 1])
    rig.step(0, "b")
    assert [b"0.5" in command for command in rig.line.sent] == [False, True, False]


async def test_of_a_call_with_stale_claims_the_rest_is_sent_again(rig: Rig) -> None:
    rig.step(0, "a", "b")
    rig.step(1, "a", "b")
    rig.line.answer([-1, b"a", 1])
    assert rig.stale == [[rig.lease("a")]]
    assert rig.line.frames()[1] == [("b", 0)]
    rig.line.answer([1, 1])
    assert rig.line.frames()[2] == [("b", 1)]


@pytest.mark.parametrize("refusal", [None, ResponseError("OOM"), ResponseError("NOSCRIPT")])
async def test_what_was_not_confirmed_is_sent_again_on_a_new_connection(
    rig: Rig, refusal: ResponseError | None
) -> None:
    rig.publisher.end(rig.attempt("a"), Finished(0, "stop"))
    rig.publisher.flush()
    if refusal is None:
        rig.line.broken = True
    else:
        rig.line.waiting.append(refusal)
    rig.step(0, "b")
    await eventually(lambda: len(rig.line.sent) == 2)
    assert rig.line.opened == 2
    assert [b"0.5" in command for command in rig.line.sent] == [True, True]
    rig.line.answer([1, 1])
    await eventually(lambda: len(rig.line.sent) == 3)
    assert rig.line.frames()[2] == [("b", 0)]


async def test_a_job_that_ends_with_what_waits_does_not_end_with_what_is_sent_again(rig: Rig) -> None:
    rig.step(0, "a")
    rig.publisher.end(rig.attempt("a"), Finished(1, "stop"))
    rig.publisher.flush()
    rig.line.answer(ResponseError("NOSCRIPT"))
    await eventually(lambda: len(rig.line.sent) == 2)
    rig.line.answer([1, 1])
    await eventually(lambda: len(rig.line.sent) == 3)
    # A job is reported as (id, attempt, usage if it ends, number of events, event).
    endings = [command[-5:-3] == [b"a", b"1"] and command[-3] != b"" for command in rig.line.sent]
    assert endings == [False, False, True]


async def test_a_store_that_says_nothing_is_left_for_a_new_connection(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.jobs.publisher, "READ_TIMEOUT", 0.02)
    rig.step(0, "a")
    await eventually(lambda: rig.line.opened == 2)
    assert rig.line.frames() == [[("a", 0)], [("a", 0)]]


async def test_what_is_dropped_before_it_is_sent_is_never_said(rig: Rig) -> None:
    rig.step(0, "a")
    rig.publisher.add(rig.lease("b"), encode_event(Delta(0, (7,), "x")))
    rig.publisher.drop(rig.lease("b"))
    rig.line.answer([1, 1])
    rig.publisher.flush()
    assert len(rig.line.sent) == 1


async def test_a_replica_without_a_subscriber_for_long_is_orphaned(
    rig: Rig, redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.step(0, "a")
    rig.line.waiting.append([1, 0])
    rig.step(1, "a")
    await rig.publisher.cancel_orphans(redis)
    assert rig.orphaned == []
    monkeypatch.setattr(worker.jobs.publisher, "ORPHAN_GRACE", 0.0)
    await redis.set(keys.replica(REPLICA), "{}")  # It is registered again, and about to subscribe.
    await rig.publisher.cancel_orphans(redis)
    await redis.delete(keys.replica(REPLICA))
    for step, receivers in ((2, 0), (3, 1)):
        rig.line.waiting.append([1, receivers])
        rig.step(step, "a")
    await rig.publisher.cancel_orphans(redis)
    assert rig.orphaned == []
    rig.line.waiting.append([1, 0])
    rig.step(4, "a")
    await rig.publisher.cancel_orphans(redis)
    assert rig.orphaned == [REPLICA]


def reply_of(line: str) -> Exception:
    """An error reply of the store, as the connection returns it."""
    error: Exception = cast(Any, DefaultParser).parse_error(line)
    return error


STATES = [
    "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "LOADING Valkey is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOAUTH Authentication required.",
    "NOPERM User worker has no permissions to run the 'evalsha' command",
    "NOREPLICAS Not enough good replicas to write.",
    "NOSCRIPT No matching script.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY You can't write against a read only replica.",
]


@pytest.mark.parametrize("line", STATES)
async def test_what_the_state_of_the_store_refuses_is_sent_again_unchanged(rig: Rig, line: str) -> None:
    rig.step(0, "a", "b")
    rig.line.waiting.append(reply_of(line))
    rig.publisher.flush()
    await eventually(lambda: len(rig.line.sent) == 2)
    assert rig.line.frames() == [[("a", 0), ("b", 0)]] * 2
    assert rig.line.opened == 2
    assert rig.stale == []
