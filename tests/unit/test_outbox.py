"""Pending completions: added, withdrawn, taken over, and finished in place of a replica that has gone."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from arq.connections import ArqRedis
from fakeredis import FakeAsyncRedis

from api.build import build
from api.chat_exchange import ChatExchange
from api.keys import ApiKey
from api.keys.store import put_key
from api.limits import Limiter, Reservation
from api.outbox import Outbox, PendingCompletion
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Delta, Event, Failed, Finished, Started, encode_event
from shared.protocol.queue import JobQueue
from shared.protocol.registry import ReplicaInfo, announce_replica, announce_worker, withdraw_replica
from shared.protocol.request import ChatRequest, Message, Sampling
from shared.redis import keys
from shared.runtime.settings import ApiSettings
from tests.support.eventually import PATIENCE, eventually
from tests.support.jobs import WORKER
from tests.support.redis_types import awaitable

LEASE = 0.15
MESSAGES = b'[{"role":"user","content":"hello"}]'
ANSWER: tuple[Event, ...] = (
    Started("w1", 3, "fp_test"), Delta(0, (1, 2), "Hel"), Delta(2, (3,), "lo"), Finished(3, "stop")
)  # fmt: skip


@pytest.fixture
async def redis() -> AsyncIterator[ArqRedis]:
    fake = FakeAsyncRedis()
    yield ArqRedis(pool_or_conn=fake.connection_pool)
    await fake.aclose()


def pending(answer_id: str = "a1", **fields: Any) -> PendingCompletion:
    request = ChatRequest(
        model="tiny",
        messages=(Message(role="user", content="hello"),),
        sampling=Sampling(max_tokens=10),
        store=True,
        metadata=(("topic", "sea"),),
    )
    values: dict[str, Any] = {
        "accepted": time.time(),
        "request": request,
        "messages": MESSAGES,
        "jobs": (f"job-{answer_id}",),
    }
    return PendingCompletion(answer_id=answer_id, **(values | fields))


def outbox(redis: ArqRedis, replica: str) -> Outbox:
    return Outbox(redis, replica, max_duration=600)


def timeless(completions: Sequence[PendingCompletion]) -> list[PendingCompletion]:
    """The pending completions as they were before they were added."""
    return [msgspec.structs.replace(completion, given=None) for completion in completions]


async def announce(redis: ArqRedis, replica: str, lease: float = 60) -> None:
    info = ReplicaInfo(id=replica, host="h", pid=1, address="", started=0.0)
    await announce_replica(redis, info, lease=lease)


async def write_journal(redis: ArqRedis, job: str, events: Sequence[Event]) -> None:
    await awaitable(redis.rpush(keys.journal(job), *map(encode_event, events)))


async def test_a_pending_completion_is_kept_until_it_is_withdrawn(redis: ArqRedis) -> None:
    own = outbox(redis, "api-1")
    completion = pending(tenant="key-1", reserved=("name", 30), queue_timeout=5.0)
    await own.add(completion)
    assert await own.owners() == {"api-1"}
    assert timeless(await own.own(but=())) == [completion]
    assert await own.own(but=["a1"]) == []
    for key in (keys.outbox("api-1"), keys.OUTBOX_OWNERS):
        assert 600_000 < await redis.pttl(key) <= 660_000
    assert await own.remove("a1")
    assert not await own.remove("a1")


async def test_only_pending_completions_of_a_replica_that_has_gone_are_taken_over(redis: ArqRedis) -> None:
    gone, heir = outbox(redis, "gone"), outbox(redis, "heir")
    completions = [pending("a1"), pending("a2")]
    for completion in completions:
        await gone.add(completion)
    await announce(redis, "gone")
    assert await heir.take_over("gone") == 0
    await redis.delete(keys.replica("gone"))
    assert await heir.take_over("gone") == 2
    assert timeless(await heir.own(but=())) == completions
    assert await gone.own(but=()) == []
    assert await heir.owners() == {"heir"}
    assert await heir.take_over("gone") == 0


async def test_several_replicas_share_the_pending_completions_of_one_that_has_gone(redis: ArqRedis) -> None:
    gone = outbox(redis, "gone")
    for number in range(100):
        await gone.add(pending(f"a{number}"))
    heirs = [outbox(redis, name) for name in ("b", "c")]
    taken = [await heir.take_over("gone") for heir in heirs]
    assert all(taken)
    assert sum(taken) == 100
    names = [completion.answer_id for heir in heirs for completion in await heir.own(but=())]
    assert sorted(names) == sorted(f"a{number}" for number in range(100))


async def test_an_unreadable_pending_completion_is_dropped(redis: ArqRedis) -> None:
    own = outbox(redis, "api-1")
    await own.add(pending("a1"))
    await awaitable(redis.hset(keys.outbox("api-1"), "a2", "?"))
    assert [completion.answer_id for completion in await own.own(but=())] == ["a1"]
    assert await awaitable(redis.hkeys(keys.outbox("api-1"))) == [b"a1"]


class Harness:
    """A replica whose completion recovery runs; the test runs its other background tasks by hand."""

    def __init__(self, redis: ArqRedis, name: str) -> None:
        self.redis = redis
        self.name = name
        self.replica = build(redis, ApiSettings(lease=LEASE), name)
        self.limiter = Limiter(redis, replica=name, lease=LEASE, longest=600)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await announce(self.redis, self.name)
        await self.replica.keyring.refresh()
        await self.replica.directory.refresh()
        self._running = asyncio.create_task(self.replica.completion_recovery.run())

    async def stop(self) -> None:
        assert self._running is not None
        self._running.cancel()
        await self.replica.completion_recovery.aclose()
        await self.replica.job_tasks.finish(PATIENCE)
        await self.replica.relay.close_all()

    async def count_pending(self) -> int:
        return int(await awaitable(self.redis.hlen(keys.outbox(self.name))))


@pytest.fixture
async def heir(redis: ArqRedis) -> AsyncIterator[Harness]:
    harness = Harness(redis, "heir")
    await harness.start()
    yield harness
    await harness.stop()


async def none_pending(redis: ArqRedis) -> None:
    """Wait until no completion is pending."""

    async def none_left() -> bool:
        return not await redis.exists(keys.outbox("gone"), keys.outbox("heir"))

    await eventually(none_left)


async def test_an_answer_that_ended_unheard_is_stored_as_it_would_have_been(redis: ArqRedis, heir: Harness) -> None:
    completion = pending(tenant="key-1", accepted=time.time() - 3)
    await outbox(redis, "gone").add(completion)
    await write_journal(redis, "job-a1", ANSWER)
    await none_pending(redis)
    found = await heir.replica.stored.get("key-1", "chatcmpl-a1")
    assert found is not None
    assert (found.model, found.messages, found.metadata) == ("tiny", MESSAGES, {"topic": "sea"})
    document = json.loads(found.document)
    assert (document["created"], document["system_fingerprint"]) == (int(completion.accepted), "fp_test")
    assert document["choices"][0]["message"]["content"] == "Hello"
    assert document["choices"][0]["finish_reason"] == "stop"
    assert document["usage"]["total_tokens"] == 6
    assert await heir.replica.stored.get("", "chatcmpl-a1") is None


async def test_an_answer_under_way_is_followed_to_its_end(redis: ArqRedis, heir: Harness) -> None:
    await redis.set(keys.payload("job-a1"), b"?")
    await write_journal(redis, "job-a1", ANSWER[:2])
    await outbox(redis, "gone").add(pending())

    async def followed() -> bool:
        return bool(heir.replica.relay.streams())

    await eventually(followed)
    await heir.replica.relay.recovered()
    (answer,) = heir.replica.relay.streams()
    await write_journal(redis, "job-a1", ANSWER[2:])
    heir.replica.relay.catch_up(answer)
    await none_pending(redis)
    found = await heir.replica.stored.get("", "chatcmpl-a1")
    assert found is not None
    assert b"Hello" in found.document
    assert await redis.exists(keys.state("job-a1")) == 0, "a finished job was cancelled"


@pytest.mark.parametrize(
    "journal",
    [(), ANSWER[:2], (*ANSWER[:2], Failed(Problem(kind=ProblemKind.CACHE_EXHAUSTED, message="full")))],
    ids=["never queued", "lost", "failed"],
)
async def test_an_answer_that_fails_is_not_stored(redis: ArqRedis, heir: Harness, journal: tuple[Event, ...]) -> None:
    if journal:
        await write_journal(redis, "job-a1", journal)
    await outbox(redis, "gone").add(pending())
    await none_pending(redis)
    assert await heir.replica.stored.get("", "chatcmpl-a1") is None
    assert heir.replica.relay.streams() == set()


@pytest.mark.usefixtures("wall_clock")
async def test_a_taken_over_request_is_settled_once(redis: ArqRedis, heir: Harness) -> None:
    key = ApiKey(id="key-1", digest="0" * 64, tokens_per_minute=1000, concurrency=1)
    await put_key(redis, key)
    await heir.replica.keyring.refresh()
    reservation = Reservation(key, "r1", 500)
    assert (await heir.limiter.reserve(reservation))[0] is None
    await write_journal(redis, "job-a1", ANSWER)
    await outbox(redis, "gone").add(pending(tenant="key-1", reserved=("r1", 500)))
    await none_pending(redis)

    async def place_is_free() -> bool:
        return not await redis.zcard(keys.admitted("key-1"))

    await eventually(place_is_free)
    _, counts = await heir.limiter.reserve(Reservation(key, "r2", 0))
    assert counts["tokens"].remaining == 1000 - 6


@pytest.mark.usefixtures("wall_clock")
async def test_a_taken_over_request_keeps_its_concurrency_place_until_it_ends(redis: ArqRedis, heir: Harness) -> None:
    key = ApiKey(id="key-1", digest="0" * 64, concurrency=1)
    await put_key(redis, key)
    await heir.replica.keyring.refresh()
    reservation = Reservation(key, "r1 gone", 0)
    assert (await heir.limiter.reserve(reservation))[0] is None
    await redis.set(keys.payload("job-a1"), b"?")
    await write_journal(redis, "job-a1", ANSWER[:2])
    await outbox(redis, "gone").add(pending(tenant="key-1", reserved=("r1 gone", 0)))

    async def places() -> list[bytes]:
        return list(await redis.zrange(keys.admitted("key-1"), 0, -1))

    async def adopted() -> bool:
        return await places() == [b"r1 heir"]

    async def freed() -> bool:
        return await places() == []

    await eventually(adopted)
    assert (await heir.limiter.reserve(Reservation(key, "r2 heir", 0)))[0] is not None
    await heir.replica.relay.recovered()
    (answer,) = heir.replica.relay.streams()
    await write_journal(redis, "job-a1", ANSWER[2:])
    heir.replica.relay.catch_up(answer)
    await eventually(freed)


def exchange_of(harness: Harness, key: ApiKey | None = None) -> ChatExchange:
    return ChatExchange(
        harness.replica, pending().request, key=key, headers={}, messages=MESSAGES, started_at=time.monotonic()
    )


async def test_a_replica_that_ends_leaves_its_pending_completion_and_its_jobs(redis: ArqRedis) -> None:
    key = ApiKey(id="key-1", digest="0" * 64, concurrency=1)
    await put_key(redis, key)
    await announce_worker(redis, WORKER, lease=60)
    ending = Harness(redis, "gone")
    await ending.start()
    async with exchange_of(ending, key) as exchange:
        (job,) = exchange.stream.jobs
        await JobQueue(redis, WORKER.model).claim("w1", used=0, slots=1)
        await ending.replica.draining.drain(0)
    await ending.stop()
    await ending.replica.admission.aclose()
    assert await ending.count_pending() == 1
    assert await awaitable(redis.hget(keys.claims("tiny"), job)) == b"1 w1"
    assert not await awaitable(redis.hget(keys.state(job), "cancelled"))
    assert await redis.zcard(keys.admitted(key.id)) == 1, "the request was settled"

    await withdraw_replica(redis, "gone")
    heir = Harness(redis, "heir")
    await heir.start()
    await write_journal(redis, job, ANSWER)
    await none_pending(redis)
    assert await heir.replica.stored.get("key-1", f"chatcmpl-{exchange.id}") is not None
    await heir.stop()
    await heir.replica.admission.aclose()
    assert not await redis.zcard(keys.admitted(key.id))


async def test_a_client_that_leaves_takes_its_request_with_it(redis: ArqRedis, heir: Harness) -> None:
    await announce_worker(redis, WORKER, lease=60)
    async with exchange_of(heir) as exchange:
        assert await heir.count_pending() == 1
        (job,) = exchange.stream.jobs
        await JobQueue(redis, WORKER.model).claim("w1", used=0, slots=1)
    await none_pending(redis)
    await heir.replica.job_tasks.finish(PATIENCE)
    assert await awaitable(redis.hget(keys.state(job), "cancelled"))
