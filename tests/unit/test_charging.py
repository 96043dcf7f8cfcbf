"""What requests are charged that end before a worker has reported their prompt's tokens."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from arq.connections import ArqRedis

from api.admission import Admission, Ticket
from api.answers.usage_recorder import UsageRecorder
from api.keys import ApiKey
from api.limits import Limiter, Reservation
from api.main import build
from api.response_stream import ResponseStream
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Rejected, Started
from shared.protocol.queue import JobQueue
from shared.protocol.registry import announce_worker
from shared.protocol.request import ChatRequest, Message, Sampling
from shared.redis import keys
from shared.runtime.settings import ApiSettings
from tests.support.jobs import WORKER
from tests.support.redis_types import awaitable

LIMIT = 100_000
PATIENCE = 3.0
PROMPT = 10_000
"""Tokens by which a prompt of 40,000 characters is counted; its message adds a few."""
KEY = ApiKey(id="key-1", digest="0" * 64, tokens_per_minute=LIMIT, concurrency=1)


class NotingLimiter(Limiter):
    """A limiter that notes what it settles: the bucket itself fills while a test runs."""

    def __init__(self, redis: ArqRedis) -> None:
        super().__init__(redis, replica="r", lease=60, longest=600)
        self.used: list[int] = []

    async def settle(self, reservation: Reservation, used: int) -> None:
        await super().settle(reservation, used)
        self.used.append(used)


class Replica:
    """The parts of an API replica that count tokens."""

    def __init__(self, redis: ArqRedis) -> None:
        self.redis = redis
        self.parts = build(redis, ApiSettings(), "r")
        self.limiter = NotingLimiter(redis)
        self.admission = Admission(self.parts.keyring, self.limiter, self.parts.settings)
        self.queue = JobQueue(redis, WORKER.model)

    async def accept(self, request: ChatRequest, tally: UsageRecorder) -> tuple[Ticket, ResponseStream]:
        ticket = await self.admission.admit(KEY, request, {})
        return ticket, await self.parts.submission.submit(ticket.request, tally, tenant=ticket.tenant)

    async def end(self, ticket: Ticket, tally: UsageRecorder) -> int:
        """End the exchange as the routes do; return the tokens that the key was charged."""
        if tally.stream is not None:
            self.parts.streams.close(tally.stream)
        self.parts.charges.charge(ticket.request, ticket.tenant, tally)
        assert ticket.reservation is not None
        self.admission.settle(ticket.reservation, ticket.request, tally)
        await self.parts.job_tasks.finish(PATIENCE)
        await self.admission.aclose()
        assert await self.redis.zcard(keys.admitted(KEY.id)) == 0
        (used,) = self.limiter.used
        return used

    async def finish_tag(self) -> int:
        """The tenant's place in the fair queue, in tokens."""
        return int(await awaitable(self.redis.hget(keys.fair_queue(WORKER.model), f"finish:-1:{KEY.id}")))


@pytest.fixture
async def replica(redis: ArqRedis) -> AsyncIterator[Replica]:
    replica = Replica(redis)
    await announce_worker(redis, WORKER, lease=60)
    await replica.parts.directory.refresh()
    yield replica
    await replica.parts.job_tasks.finish(PATIENCE)
    await replica.admission.aclose()


def chat(text: str = "x" * 4 * PROMPT, n: int = 1, max_tokens: int = 1000) -> ChatRequest:
    return ChatRequest(
        model=WORKER.model,
        messages=(Message(role="user", content=text),),
        sampling=Sampling(max_tokens=max_tokens),
        n=n,
    )


def tokens(count: int) -> object:
    return pytest.approx(count, abs=100)


async def test_leaving_before_a_worker_has_the_request_costs_nothing(replica: Replica) -> None:
    tally = UsageRecorder()
    ticket, _ = await replica.accept(chat(), tally)
    assert await replica.end(ticket, tally) == tokens(0)
    assert await replica.finish_tag() == tokens(0)


async def test_leaving_before_the_first_token_costs_the_prompt(replica: Replica) -> None:
    tally = UsageRecorder()
    ticket, _ = await replica.accept(chat(), tally)
    await replica.queue.claim("w1", used=0, slots=1)
    assert await replica.end(ticket, tally) == tokens(PROMPT)
    assert await replica.finish_tag() == tokens(PROMPT)


async def test_the_prompt_of_several_choices_costs_once(replica: Replica) -> None:
    tally = UsageRecorder()
    ticket, _ = await replica.accept(chat(n=4), tally)
    await replica.queue.claim("w1", used=0, slots=3)
    assert await replica.end(ticket, tally) == tokens(PROMPT)


async def test_of_several_prompts_those_cost_that_workers_have(replica: Replica) -> None:
    prompts = tuple(letter * 4 * PROMPT for letter in "abcd")
    request = ChatRequest(model=WORKER.model, prompts=prompts, sampling=Sampling(max_tokens=10), n=2)
    tally = UsageRecorder()
    ticket, _ = await replica.accept(request, tally)
    # Both choices of two prompts, and one of the third.
    await replica.queue.claim("w1", used=0, slots=5)
    tally.started(0, Started("w1", 7, "f"))
    assert await replica.end(ticket, tally) == tokens(2 * PROMPT)


async def test_what_a_worker_has_reported_counts(replica: Replica) -> None:
    tally = UsageRecorder()
    ticket, _ = await replica.accept(chat(n=2), tally)
    await replica.queue.claim("w1", used=0, slots=2)
    tally.started(0, Started("w1", 5000, "f"))
    assert await replica.end(ticket, tally) == tokens(5000)


@pytest.mark.parametrize(
    ("kind", "charged"),
    [
        (ProblemKind.TIMEOUT, PROMPT),
        (ProblemKind.NO_WORKER, 0),
        (ProblemKind.SHUTTING_DOWN, 0),
    ],
)
async def test_an_end_from_this_side(replica: Replica, kind: ProblemKind, charged: int) -> None:
    tally = UsageRecorder()
    ticket, answer = await replica.accept(chat(), tally)
    await replica.queue.claim("w1", used=0, slots=1)
    answer.fail(Problem(kind=kind, message=""))
    assert await replica.end(ticket, tally) == tokens(charged)


async def test_a_refusal_by_the_worker_costs_nothing(replica: Replica) -> None:
    tally = UsageRecorder()
    ticket, answer = await replica.accept(chat(n=2), tally)
    await replica.queue.claim("w1", used=0, slots=2)
    answer.choices[0].take(1, Rejected(Problem(kind=ProblemKind.CONTEXT_LENGTH, message="")))
    assert await replica.end(ticket, tally) == tokens(0)


async def test_leaving_while_the_request_is_queued(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = UsageRecorder()
    ticket = await replica.admission.admit(KEY, chat(), {})
    enqueue = JobQueue.enqueue
    queued = asyncio.Event()

    async def enqueue_and_hang(*arguments: object, **options: object) -> None:
        await enqueue(*arguments, **options)  # type: ignore[arg-type]
        queued.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(JobQueue, "enqueue", enqueue_and_hang)
    submitting = asyncio.create_task(replica.parts.submission.submit(ticket.request, tally, tenant=ticket.tenant))
    await queued.wait()
    await replica.queue.claim("w1", used=0, slots=1)
    submitting.cancel()
    await asyncio.gather(submitting, return_exceptions=True)
    assert await replica.end(ticket, tally) == tokens(PROMPT)
