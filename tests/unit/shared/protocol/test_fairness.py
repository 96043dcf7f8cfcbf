"""Fair queueing between keys, between the keys of a team, and between teams."""

import msgspec
import pytest
from arq.connections import ArqRedis

from shared.protocol.cost import UNBOUNDED_RESPONSE, prompt_cost
from shared.protocol.events import Finished, encode_event
from shared.protocol.queue import EQUAL, Emitter, JobQueue, Lease, Weights
from shared.protocol.request import COUNT, ChatRequest, Embed, Job, Message
from shared.protocol.usage import UsageCounts
from shared.redis import keys
from tests.support.emitting import emit
from tests.support.jobs import REPLICA
from tests.support.redis_types import awaitable

REQUEST = ChatRequest(model="tiny", messages=(Message(role="user", content="x" * 4000),))
ESTIMATE = prompt_cost(REQUEST) + UNBOUNDED_RESPONSE


async def enqueue(redis: ArqRedis, name: str, key: str, team: str = "", weights: Weights = EQUAL) -> None:
    job = Job(id=name, reply_to=REPLICA, request=REQUEST, tenant=key, team=team)
    await JobQueue(redis, "tiny").enqueue([job], limit=999, weights=weights)


async def order(redis: ArqRedis) -> str:
    """The first letters of the waiting jobs' ids, in the order in which workers claim them."""
    return "".join(job.decode()[0] for job in await redis.zrange(keys.queue("tiny"), 0, -1))


async def finish(redis: ArqRedis, key: str) -> int:
    return int(await awaitable(redis.hget(keys.fair_queue("tiny"), f"finish:-2:{key}")) or 0)


async def end(redis: ArqRedis, name: str, used: int) -> None:
    """End a claimed job that has used so many tokens."""
    lease = Lease(name, 1, REPLICA)
    lease.usage = UsageCounts(prompt_tokens=100, completion_tokens=used - 100).encode()
    await emit(redis, Emitter("tiny", "w1"), {lease: [encode_event(Finished(1, "stop"))]}, ended=[lease])


async def test_a_key_does_not_wait_for_the_flood_of_another_key_of_its_team(redis: ArqRedis) -> None:
    for number in range(20):
        await enqueue(redis, f"a{number:02}", "anna", "physics")
    for number in range(2):
        await enqueue(redis, f"b{number}", "ben", "physics")
    assert (await order(redis)).startswith("abaab"), "ben's second request waits for two of anna's"


async def test_the_keys_of_a_team_share_in_proportion_to_their_weights(redis: ArqRedis) -> None:
    for number in range(20):
        await enqueue(redis, f"a{number:02}", "anna", "physics", Weights(key=3))
        await enqueue(redis, f"b{number:02}", "ben", "physics")
    assert (await order(redis))[2:18].count("a") == 12


async def test_a_team_gets_the_share_of_its_weight_however_many_keys_it_has(redis: ArqRedis) -> None:
    for number in range(13):
        await enqueue(redis, f"c{number:02}", "carl")
        for member in range(4 if number < 7 else 0):
            await enqueue(redis, f"p{number:02}-{member}", f"member-{member}", "physics", Weights(team=2))
    first, later = (await order(redis))[:5], (await order(redis))[5:35]
    assert first.count("p") == 4, "no key waits for its first request"
    assert later.count("p") in (19, 20, 21)


async def test_a_key_that_is_served_leaves_its_share_to_the_others(redis: ArqRedis) -> None:
    await enqueue(redis, "b", "ben", "physics")
    await enqueue(redis, "a0", "anna", "physics")
    queue = JobQueue(redis, "tiny")
    for number in range(1, 5):
        await enqueue(redis, f"a{number}", "anna", "physics")
        await queue.claim("w1", used=0, slots=8)
    assert await awaitable(redis.hget(keys.fair_queue("tiny"), "members:-2:physics")) == b"anna 1"


async def test_what_a_request_did_not_use_is_returned_to_its_key(redis: ArqRedis) -> None:
    await enqueue(redis, "a", "anna", "physics", Weights(team=2))
    queued = await finish(redis, "anna")
    await JobQueue(redis, "tiny").claim("w1", used=0, slots=8)
    for name in ("b", "c"):
        await enqueue(redis, name, name, "physics", Weights(team=2))
    await end(redis, "a", ESTIMATE - 1000)
    assert await finish(redis, "anna") == queued - 500, "at the weight at which it was queued, when anna was alone"


async def test_a_key_that_had_the_service_to_itself_owes_nothing(redis: ArqRedis) -> None:
    queue = JobQueue(redis, "tiny")
    for job in ("first", "second", "third"):
        await enqueue(redis, job, "anna")
        await queue.claim("w1", used=0, slots=8)
        await end(redis, job, ESTIMATE + 10_000)
    for number in range(3):
        await enqueue(redis, f"a{number}", "anna")
        await enqueue(redis, f"b{number}", "ben")
    assert (await order(redis))[:4].count("a") == 2
    await queue.claim("w1", used=0, slots=8)
    await end(redis, "a0", ESTIMATE + 10_000)
    await enqueue(redis, "a3", "anna")
    await enqueue(redis, "b3", "ben")
    assert (await order(redis)).endswith("ba"), "ben waits, so anna pays"


async def test_counting_tokens_delays_a_key_by_its_prompt(redis: ArqRedis) -> None:
    """Its burst waits behind others, although usage does not count it."""
    queue, count = JobQueue(redis, "tiny"), msgspec.structs.replace(REQUEST, work=COUNT)
    await queue.enqueue([Job(id="a", reply_to=REPLICA, request=count, tenant="anna")], limit=9)
    await queue.claim("w1", used=0, slots=8)
    await end(redis, "a", 100)
    assert await finish(redis, "anna") == 1 + prompt_cost(REQUEST)


async def embed(redis: ArqRedis, name: str, key: str, texts: int, jobs: int = 1) -> None:
    request = ChatRequest(model="tiny", prompts=("x" * 100,) * texts, work=Embed())
    named = [Job(id=f"{name}{at:02}", reply_to=REPLICA, request=request, tenant=key) for at in range(jobs)]
    await JobQueue(redis, "tiny").enqueue(named, limit=999)


@pytest.mark.parametrize("key", ["", "anna"])
async def test_a_query_does_not_wait_for_what_its_own_key_indexes(redis: ArqRedis, key: str) -> None:
    await embed(redis, "a", key, 32, jobs=20)
    await JobQueue(redis, "tiny").claim("w1", used=0, slots=4)
    for name in "bcd":
        await embed(redis, name, key, 1)
    assert (await order(redis))[:5] == "bcdaa", "in order of arrival among themselves"


async def test_queries_get_no_more_than_the_share_of_a_key(redis: ArqRedis) -> None:
    for number in range(20):
        await embed(redis, f"a{number:02}", "anna", 1)
    await embed(redis, "b", "ben", 1, jobs=5)
    assert (await order(redis)).startswith("babababa")


async def test_what_queries_cost_counts_for_their_key(redis: ArqRedis) -> None:
    for _ in range(3):
        await embed(redis, f"q{_}", "anna", 1)
    queries = await finish(redis, "anna")
    await embed(redis, "a", "anna", 3)
    assert queries == 1 + 3 * prompt_cost(ChatRequest(model="tiny", prompts=("x" * 100,), work=Embed()))
    assert await finish(redis, "anna") == 1 + 2 * (queries - 1)


@pytest.mark.parametrize(("indexing", "asking"), [("", ""), ("anna", "anna"), ("anna", "ben")])
async def test_a_query_finds_a_slot_while_others_index(redis: ArqRedis, indexing: str, asking: str) -> None:
    """Its worker computes it in one of the next two steps, so that it waits for no job to end."""
    queue = JobQueue(redis, "tiny")
    await embed(redis, "a", indexing, 32, jobs=300)
    bulk, waiting = await queue.claim("w1", used=0, slots=64, query_reserve=8)
    assert (len(bulk), waiting) == (56, 0), "it may claim none of the others"
    keepers = [claim.keeper for claim in bulk]
    for number in range(4):
        await embed(redis, f"q{number}", asking, 1)
    queries, _ = await queue.claim("w1", used=56, slots=64, query_reserve=8, keepers=keepers)
    assert [claim.job for claim in queries] == ["q000", "q100", "q200", "q300"]
    more, _ = await queue.claim("w1", used=59, slots=64, query_reserve=8, keepers=keepers[1:])
    assert [claim.job for claim in more] == ["a56"], "queries keep no slot from what is indexed"
