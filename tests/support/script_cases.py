"""Calls of every script through its real client."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest
from arq.connections import ArqRedis

from api.batches.record import Batch
from api.batches.store import BatchStore
from api.files.record import FileRecord
from api.files.store import FileStore
from api.keys import ApiKey, Team
from api.limits import Limiter, Reservation
from shared.protocol.errors import RequestRefused
from shared.protocol.events import Delta, Finished, encode_event
from shared.protocol.queue import Emitter, JobQueue, Lease
from shared.protocol.queue.occupancy import OccupancyReader
from shared.protocol.registry import announce
from shared.protocol.request import ChatRequest, Image, Job, Message, Sampling
from shared.protocol.usage import UsageCounts
from shared.redis import keys
from tests.support.emitting import emit, journal_of
from tests.support.jobs import REPLICA, WORKER, job
from tests.support.redis_types import awaitable
from tests.support.stored import completion, response, response_store
from worker.node.node import Placements

KEY = ApiKey(id="key-1", digest="0" * 64, requests_per_minute=2, tokens_per_minute=6000, concurrency=1)
REQUEST = ChatRequest(model=WORKER.model, messages=(Message(role="user", content="hello " * 1000),))
BATCH = Batch(id="batch_1", owner="key-1", endpoint="", input_file="", created=0, expires=0, retention=1)
DELTA = encode_event(Delta(0, (7,), "x"))
END = encode_event(Finished(1, "stop"))


class Client:
    """The clients of one store."""

    def __init__(self, redis: ArqRedis) -> None:
        self.redis = redis
        self.queue = JobQueue(redis, WORKER.model, prefix_routing=True)
        self.emitter = Emitter(WORKER.model, "w1")
        self.limiter = Limiter(redis, replica=REPLICA, lease=60, longest=600)
        self.files = FileStore(redis, cast("Any", None), limit=1, max_bytes=1000)
        self.batches = BatchStore(redis, limit=1)
        self.stored = response_store(redis, limit=2, bytes=2000)

    async def claimed(self, *names: str) -> list[Lease]:
        """Queue and claim jobs, as another worker process."""
        self.emitter = Emitter(WORKER.model, "w1")
        await self.queue.enqueue([job(name) for name in names], limit=10)
        claims, _ = await self.queue.claim("w1", used=0, slots=8)
        return [Lease(claim.job, claim.attempt, REPLICA) for claim in claims]

    async def expire_leases(self) -> None:
        """Let all leases have ended."""
        inflight = keys.inflight(WORKER.model)
        await self.redis.zadd(inflight, dict.fromkeys(await self.redis.zrange(inflight, 0, -1), 1))


Case = Callable[[Client], Awaitable[object]]


async def enqueue(client: Client) -> None:
    jobs = [
        Job(id=f"a:{choice}", reply_to=REPLICA, request=REQUEST, tenant="key-1", team="physics") for choice in range(2)
    ]
    assert await client.queue.enqueue(jobs, limit=2) == 0


async def enqueue_behind_another(client: Client) -> None:
    await client.queue.enqueue([job("first")], limit=1)
    assert await client.queue.enqueue([job("second")], limit=2) == 1


async def enqueue_cancelled(client: Client) -> None:
    await client.queue.cancel(["a"])
    await client.queue.enqueue([job("a")], limit=1)
    assert await client.queue.depth() == (0, 0)


async def enqueue_images(client: Client) -> None:
    message = Message(role="user", images=(Image(digest="x"),))
    request = ChatRequest(model=WORKER.model, messages=(message,))
    look = Job(id="a:0", reply_to=REPLICA, request=request, tenant="key-1")
    assert await client.queue.enqueue([look], limit=1, images={"x": b"file"}, max_media_bytes=4) == 0


async def note(client: Client) -> None:
    await client.queue.note_reasoning("key-1", None, 50, job="a")
    assert await client.redis.xlen(keys.ended(WORKER.model)) == 1


async def cancel(client: Client) -> None:
    await client.claimed("a")
    await client.queue.enqueue([job("b")], limit=2)
    assert await client.queue.cancel(["a", "b", "c"]) == {"a"}


async def renew(client: Client) -> None:
    await client.claimed("a", "b")
    await client.queue.cancel(["b"])
    await client.queue.renew("w2", info=WORKER)
    assert await client.queue.renew("w1", [("a", 1), ("b", 1), ("c", 1)]) == ["b", "c"]


async def release(client: Client) -> None:
    await client.claimed("a", "b")
    assert await client.queue.release("w1", [("a", 1), ("b", 1)], suspects={"a"}) == 2


async def reap(client: Client) -> None:
    await client.claimed("a", "b")
    await client.queue.reap()
    await client.expire_leases()
    requeued, _ = await client.queue.reap()
    assert requeued == ["a", "b"]


async def yield_slot(client: Client) -> None:
    await client.claimed("a", "b")
    await client.redis.zadd(keys.load(WORKER.model), {"w1": 1})
    await client.queue.enqueue([msgspec.structs.replace(job("c"), tenant="key-1")], limit=10)
    assert await client.queue.yield_slot("w1", [("a", 1)], slots=2, keepers=["key-2"]) == "a"
    assert await client.queue.depth() == (2, 1)


async def occupancy(client: Client) -> None:
    await client.claimed("a")
    assert set((await OccupancyReader(client.redis).read(WORKER.model)).claimed) == {"a"}


async def claim(client: Client) -> None:
    assert len(await client.claimed("a")) == 1
    # The jobs of a claim whose reply was lost are not claimed again before their lease ends.
    assert await client.queue.claim("w2", used=0, slots=8) == ([], 0)
    await client.expire_leases()
    await client.queue.reap()
    ((again,), _) = await client.queue.claim("w2", used=0, slots=8)
    assert (again.job, again.attempt) == ("a", 2)


async def claim_without_jobs_that_keep_slots(client: Client) -> None:
    for name, tenant in (("a", "key-2"), ("b", "key-1"), ("c", "key-1")):
        request = msgspec.structs.replace(REQUEST, sampling=Sampling(seed=1))
        await client.queue.enqueue([Job(id=name, reply_to=REPLICA, request=request, tenant=tenant)], limit=9)
    claims, waiting = await client.queue.claim("w1", used=2, slots=4, keepers=["key-1"] * 2)
    assert ([claim.job for claim in claims], waiting) == (["a"], 0)
    assert await client.queue.depth() == (2, 1)


async def claim_of_another_vocabulary(client: Client) -> None:
    leases = await client.claimed("a")
    await emit(client.redis, client.emitter, {leases[0]: [DELTA]})
    await client.queue.release("w1", [("a", 1)])
    await client.queue.renew("w1", info=WORKER)
    assert await client.queue.claim("w2", used=0, slots=8, vocabulary="other") == ([], 1)


async def emit_deltas(client: Client) -> None:
    leases = await client.claimed("a", "b")
    await emit(client.redis, client.emitter, {lease: [DELTA] for lease in leases})
    # Readers skip events that they have by their position.
    assert [*dict.fromkeys(await journal_of(client.queue, "a"))] == [Delta(0, (7,), "x")]


async def complete_journals(client: Client) -> None:
    leases = await client.claimed("a", "b")
    for position in range(3):
        step = [encode_event(Delta(position, (7,), "x"))]
        await emit(client.redis, client.emitter, dict.fromkeys(leases, step))
    await journal_of(client.queue, "a")
    assert len({*await awaitable(client.redis.lrange(keys.journal("b"), 0, -1))}) == 3


async def emit_ends(client: Client) -> None:
    (lease,) = await client.claimed("a")
    await emit(client.redis, client.emitter, {lease: [DELTA, END]}, ended={lease}, load=0.0)
    assert len(await journal_of(client.queue, "a")) == 2
    assert await client.queue.depth() == (0, 0)


async def book(client: Client) -> None:
    for account in ("key-1@physics", ""):
        used = UsageCounts(requests=1, prompt_tokens=5, completion_tokens=2).encode()
        await client.redis.xadd(keys.ended(WORKER.model), {f"{account} other": used})
    await client.queue.book()
    for owner in ("key-1", "team:physics"):
        assert await awaitable(client.redis.hvals(keys.spent(owner))) == [b"7"]
    assert await client.redis.xlen(keys.ended(WORKER.model)) == 0


async def move_to_dead_letters(client: Client) -> None:
    await client.queue.enqueue([job("a")], limit=10)
    ((claim,), _) = await client.queue.claim("w1", used=0, slots=8)
    await client.queue.move_to_dead_letters("w1", claim, END, reply_to=REPLICA)
    assert await awaitable(client.redis.llen(keys.dead_letters(WORKER.model))) == 1
    assert await journal_of(client.queue, "a") == [Finished(1, "stop")]
    assert await client.queue.depth() == (0, 0)


async def reserve(client: Client) -> None:
    team = Team(id="physics", requests_per_minute=5, concurrency=1)
    refusal, counts = await client.limiter.reserve(Reservation(KEY, "a api-1", 1000, team))
    assert refusal is None
    assert counts["requests"].remaining == 1
    assert counts["tokens"].remaining == 5000


async def reserve_beside_another_replica(client: Client) -> None:
    other = Limiter(client.redis, replica="other", lease=60, longest=600)
    await other.reserve(Reservation(KEY, f"a {other.new_name()}", 1000))
    refusal, _ = await client.limiter.reserve(Reservation(KEY, f"b {REPLICA}", 1000))
    assert refusal is not None
    assert refusal.limit == "concurrency"


async def settle_what_a_team_refuses(client: Client) -> None:
    key = ApiKey(id="key-1", digest="0" * 64, requests_per_minute=2, tokens_per_minute=6000, tokens_per_day=10_000)
    team = Team(id="physics", tokens_per_minute=1000)
    refusal, _ = await client.limiter.reserve(Reservation(key, "a api-1", 5000, team))
    assert refusal is not None
    assert (refusal.limit, refusal.by_team) == ("tokens", True)
    _, counts = await client.limiter.reserve(Reservation(key, "b api-1", 1000))
    assert (counts["requests"].remaining, counts["tokens"].remaining) == (1, 5000)


async def settle(client: Client) -> None:
    for limits in (KEY, ApiKey(id="key-2", digest="1" * 64, tokens_per_minute=6000)):
        reservation = Reservation(limits, "a api-1", 6000, Team(id="physics", tokens_per_minute=9000, concurrency=1))
        await client.limiter.reserve(reservation)
        await client.limiter.settle(reservation, 1000)


async def add_file(client: Client) -> None:
    await client.files.add(
        FileRecord(id="file-1", owner="key-1", filename="", size=1, purpose="batch", created=0, expires=2**33)
    )


async def create_batch(client: Client) -> None:
    await client.batches.create(BATCH)


async def claim_batch(client: Client) -> None:
    await client.batches.create(BATCH)
    (found,) = await client.batches.claim(1)
    assert found.epoch == 1
    # As with jobs: a batch whose claim was not heard of is fed by nobody until the lease ends.
    assert await client.batches.claim(1) == []


async def commit_batch(client: Client) -> None:
    await client.batches.create(BATCH)
    (held,) = await client.batches.claim(1)
    held = await client.batches.commit(held, BATCH, b"\x01")
    held = await client.batches.renew(held)
    await client.batches.commit(held, BATCH, b"\x03", ended=True)


async def announce_worker(client: Client) -> None:
    await announce(client.redis, WORKER, lease=2)


async def accept_response(client: Client) -> None:
    for number in range(3):
        await client.stored.create("key-1", response(number))
        await awaitable(client.redis.rpush(keys.journal(f"j{number}"), DELTA, END))
        if number == 0:
            assert await client.stored.end("key-1", response(0), b"{}")
    assert await client.stored.get("key-1", response(0).id) is None, "it has made room"


async def measure_responses(client: Client) -> None:
    await client.stored.create("key-1", response(1))
    await awaitable(client.redis.rpush(keys.journal("j1"), b"x" * 3000))
    await awaitable(client.redis.hdel(keys.STORED_SIZES, "at key-1"))  # as after a second
    with pytest.raises(RequestRefused):
        await client.stored.create("key-1", response(2))


async def refuse_response(client: Client) -> None:
    for number in range(2):
        await client.stored.create("key-1", response(number))
    with pytest.raises(RequestRefused):
        await client.stored.create("key-1", response(2))


async def end_response(client: Client) -> None:
    for record in (response(1), completion(2, n=2)):
        await client.stored.create("key-1", record)
        for name in record.jobs:
            await awaitable(client.redis.rpush(keys.journal(name), DELTA, END))
        assert await client.stored.end("key-1", record, b'{"a":1}')
        assert not await client.stored.end("key-1", record, b"{}")


async def end_large_response(client: Client) -> None:
    for number in (1, 2):
        await client.stored.create("key-1", response(number))
        assert await client.stored.end("key-1", response(number), b'{"a":"%b"}' % (b"a" * 1500))
    assert await client.stored.get("key-1", response(1).id) is None, "it has made room"


async def delete_response(client: Client) -> None:
    await end_response(client)
    await client.stored.create("key-2", response(3))
    for owner, number in (("key-1", 1), ("key-2", 3)):
        await client.stored.delete(owner, response(number).id)


async def tag(client: Client) -> None:
    await client.stored.create("key-1", completion())
    assert await client.stored.tag("key-1", completion().id, {"a": "b"})


async def place(client: Client) -> None:
    assert await Placements(client.redis, "node-1", lease=60).take(WORKER.model, 1)


CASES: dict[str, tuple[Case, ...]] = {
    "shared/protocol/queue/enqueue.lua": (enqueue, enqueue_behind_another, enqueue_cancelled, enqueue_images),
    "shared/protocol/queue/note.lua": (note,),
    "shared/protocol/queue/claim.lua": (claim, claim_of_another_vocabulary, claim_without_jobs_that_keep_slots),
    "shared/protocol/queue/cancel.lua": (cancel,),
    "shared/protocol/queue/renew.lua": (renew,),
    "shared/protocol/queue/release.lua": (release,),
    "shared/protocol/queue/yield.lua": (yield_slot,),
    "shared/protocol/queue/reap.lua": (reap,),
    "shared/protocol/queue/occupancy.lua": (occupancy,),
    "shared/protocol/queue/emit.lua": (emit_deltas, emit_ends),
    "shared/protocol/queue/journals.lua": (complete_journals,),
    "shared/protocol/queue/book.lua": (book,),
    "shared/protocol/queue/dead_letter.lua": (move_to_dead_letters,),
    "shared/protocol/announce.lua": (announce_worker,),
    "worker/node/place.lua": (place,),
    "api/limits/reserve.lua": (reserve, reserve_beside_another_replica),
    "api/limits/settle.lua": (settle, settle_what_a_team_refuses),
    "api/files/add.lua": (add_file,),
    "api/batches/create.lua": (create_batch,),
    "api/batches/claim.lua": (claim_batch,),
    "api/batches/commit.lua": (commit_batch,),
    "api/stored/create.lua": (accept_response, refuse_response),
    "api/stored/measure.lua": (measure_responses,),
    "api/stored/end.lua": (end_response, end_large_response),
    "api/stored/delete.lua": (delete_response,),
    "api/stored/tag.lua": (tag,),
}
"""For each script, calls of it through its real client."""
