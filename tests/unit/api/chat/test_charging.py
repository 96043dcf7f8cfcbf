"""What requests are charged that end before a worker has reported their prompt's tokens."""

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from arq.connections import ArqRedis

from api.build import build
from api.keys import ApiKey
from api.limits import Limiter, Reservation
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import CANCELLED, Delta, Rejected, Started, encode_event
from shared.protocol.queue import Emitter, JobQueue, Lease
from shared.protocol.registry import announce
from shared.protocol.request import ChatRequest, Message, Sampling
from shared.protocol.usage import DAY, UsageCounts
from shared.redis import keys
from shared.redis.clock import store_time
from shared.runtime.settings import ApiSettings
from tests.support.answers import ChatExchange
from tests.support.emitting import emit
from tests.support.eventually import PATIENCE
from tests.support.jobs import WORKER
from tests.support.redis_types import awaitable

LIMIT = 100_000
PROMPT = 10_000
"""Tokens by which a prompt of 40,000 characters is counted; its message adds a few."""
KEY = ApiKey(id="key-1", digest="0" * 64, tokens_per_minute=LIMIT, concurrency=1)


class Harness:
    """An API harness, and what its limiter settled: the bucket itself fills while a test runs."""

    def __init__(self, redis: ArqRedis, used: list[int]) -> None:
        self.redis = redis
        self.replica = build(redis, ApiSettings(), "r")
        self.queue = JobQueue(redis, WORKER.model)
        self.used = used

    def exchange(self, request: ChatRequest) -> ChatExchange:
        return ChatExchange(self.replica.chat, request, key=KEY, headers={}, messages=b"", started_at=time.monotonic())

    async def accept(self, request: ChatRequest) -> ChatExchange:
        return await self.exchange(request).__aenter__()

    async def end(self, exchange: ChatExchange) -> int:
        """End the exchange; return the tokens that the key was charged."""
        await exchange.__aexit__()
        return await self.charged()

    async def charged(self) -> int:
        await self.replica.job_tasks.finish(PATIENCE)
        assert await self.redis.zcard(keys.admitted(KEY.id)) == 0
        (used,) = self.used
        return used

    async def finish_tag(self) -> int:
        """The tenant's place in the fair queue, in tokens."""
        return int(await awaitable(self.redis.hget(keys.fair_queue(WORKER.model), f"finish:-2:{KEY.id}")))


@pytest.fixture
async def harness(redis: ArqRedis, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    used: list[int] = []
    settle = Limiter.settle

    async def settle_and_note(limiter: Limiter, reservation: Reservation, tokens: int) -> None:
        await settle(limiter, reservation, tokens)
        used.append(tokens)

    monkeypatch.setattr(Limiter, "settle", settle_and_note)
    harness = Harness(redis, used)
    await announce(redis, msgspec.structs.replace(WORKER, context_length=2 * PROMPT), lease=60)
    await harness.replica.directory.refresh()
    yield harness
    await harness.replica.job_tasks.finish(PATIENCE)


def chat(text: str = "x" * 4 * PROMPT, n: int = 1, max_tokens: int = 1000) -> ChatRequest:
    return ChatRequest(
        model=WORKER.model,
        messages=(Message(role="user", content=text),),
        sampling=Sampling(max_tokens=max_tokens),
        n=n,
    )


def tokens(count: int) -> object:
    return pytest.approx(count, abs=100)


async def test_leaving_before_a_worker_has_the_request_costs_nothing(harness: Harness) -> None:
    exchange = await harness.accept(chat())
    assert await harness.end(exchange) == tokens(0)
    assert await harness.finish_tag() == tokens(0)


async def test_leaving_before_the_first_token_costs_the_prompt(harness: Harness) -> None:
    exchange = await harness.accept(chat())
    await harness.queue.claim("w1", used=0, slots=1)
    assert await harness.end(exchange) == tokens(PROMPT)
    job = exchange.stream.jobs[0]
    lease = Lease(job, 1, "r")
    lease.usage = UsageCounts(prompt_tokens=7000).encode()
    await emit(harness.redis, Emitter(WORKER.model, "w1"), {lease: [encode_event(CANCELLED)]}, ended=[lease])
    assert await harness.finish_tag() == tokens(7000), "the worker knows the prompt"


async def test_the_prompt_of_several_choices_costs_once(harness: Harness) -> None:
    exchange = await harness.accept(chat(n=4))
    await harness.queue.claim("w1", used=0, slots=3)
    assert await harness.end(exchange) == tokens(PROMPT)


async def test_of_several_prompts_those_cost_that_workers_have(harness: Harness) -> None:
    prompts = tuple(letter * 4 * PROMPT for letter in "abcd")
    request = ChatRequest(model=WORKER.model, prompts=prompts, sampling=Sampling(max_tokens=10), n=2)
    exchange = await harness.accept(request)
    # Both choices of two prompts, and one of the third.
    await harness.queue.claim("w1", used=0, slots=5)
    exchange.recorder.started(0, Started("w1", 7, "f"))
    assert await harness.end(exchange) == tokens(2 * PROMPT)


async def test_what_a_worker_has_reported_counts(harness: Harness) -> None:
    exchange = await harness.accept(chat(n=2))
    await harness.queue.claim("w1", used=0, slots=2)
    exchange.recorder.started(0, Started("w1", 5000, "f"))
    assert await harness.end(exchange) == tokens(5000)


@pytest.mark.parametrize(
    ("kind", "charged"),
    [
        (ProblemKind.TIMEOUT, PROMPT),
        (ProblemKind.NO_WORKER, 0),
        (ProblemKind.SHUTTING_DOWN, 0),
    ],
)
async def test_an_end_from_this_side(harness: Harness, kind: ProblemKind, charged: int) -> None:
    exchange = await harness.accept(chat())
    await harness.queue.claim("w1", used=0, slots=1)
    exchange.stream.fail(Problem(kind=kind, message=""))
    assert await harness.end(exchange) == tokens(charged)


async def test_a_refusal_by_the_worker_costs_nothing(harness: Harness) -> None:
    exchange = await harness.accept(chat(n=2))
    await harness.queue.claim("w1", used=0, slots=2)
    exchange.stream.choices[0].push(1, Rejected(Problem(kind=ProblemKind.CONTEXT_LENGTH, message="")))
    assert await harness.end(exchange) == tokens(0)


async def test_leaving_while_the_request_is_queued(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue = JobQueue.enqueue
    queued = asyncio.Event()

    async def enqueue_and_hang(*arguments: object, **options: object) -> None:
        await enqueue(*arguments, **options)  # type: ignore[arg-type]
        queued.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(JobQueue, "enqueue", enqueue_and_hang)
    submitting = asyncio.create_task(harness.accept(chat()))
    await queued.wait()
    await harness.queue.claim("w1", used=0, slots=1)
    submitting.cancel()
    await asyncio.gather(submitting, return_exceptions=True)
    assert await harness.charged() == tokens(PROMPT)


async def test_a_request_that_was_queued_although_the_reply_was_lost_costs_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue = JobQueue.enqueue

    async def enqueue_and_lose_the_reply(*arguments: object, **options: object) -> None:
        await enqueue(*arguments, **options)  # type: ignore[arg-type]
        await harness.queue.claim("w1", used=0, slots=1)
        raise ConnectionError("the reply was lost")

    monkeypatch.setattr(JobQueue, "enqueue", enqueue_and_lose_the_reply)
    with pytest.raises(RequestRefused):
        await harness.accept(chat())
    assert await harness.charged() == 0


async def test_leaving_while_the_request_waits_for_another_attempt_is_counted_here(harness: Harness) -> None:
    """No worker has the job any more that would count it."""
    exchange = await harness.accept(chat(n=2))
    await harness.queue.claim("w1", used=0, slots=1)
    exchange.recorder.started(0, started := Started("w1", 5000, "f"))
    for event in (started, delta := Delta(0, (7, 8, 9), "abc")):
        exchange.stream.choices[0].push(1, event)
    (job, _), events = exchange.stream.jobs, (encode_event(started), encode_event(delta))
    await awaitable(harness.redis.rpush(keys.journal(job), *events))
    await harness.queue.release("w1", [(job, 1)])
    await harness.end(exchange)
    assert await harness.finish_tag() == tokens(5003)
    await harness.queue.book()
    today = int(await store_time(harness.redis)) // DAY
    counted = await awaitable(harness.redis.hget(keys.usage(str(today)), f"{KEY.id} other {WORKER.model}"))
    assert UsageCounts.decode(counted or b"") == UsageCounts(requests=1, prompt_tokens=5000, completion_tokens=3)


async def test_an_estimate_is_at_most_the_context(harness: Harness) -> None:
    exchange = await harness.accept(chat("x" * 16 * PROMPT, max_tokens=PROMPT))
    assert await harness.finish_tag() == 2 * PROMPT + 1
    await harness.end(exchange)
