"""A chat request holds nothing once it has ended, in whichever phase that was."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from arq.connections import ArqRedis
from redis.exceptions import ConnectionError

from api.build import Parts, build
from api.chat.exchange import ChatExchange
from api.chat.usage import RequestMetrics
from api.keys import ApiKey
from api.keys.store import put_record
from api.limits import Limiter
from api.responses.routes import start_background
from api.stored.store import ResponseStore
from shared.protocol.errors import ProblemKind, RequestRefused, modality_refused
from shared.protocol.queue import JobQueue
from shared.protocol.registry import IMAGE, TEXT, announce
from shared.protocol.request import ChatRequest, Image, Job, Message
from shared.redis import keys
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks
from shared.tracing import Span
from tests.support.eventually import PATIENCE
from tests.support.jobs import WORKER
from tests.support.redis_types import awaitable

KEY = ApiKey(id="key-1", digest="0" * 64, concurrency=1, requests_per_minute=100)
PHASES = [(Limiter, "reserve"), (ResponseStore, "_run"), (JobQueue, "enqueue")]
"""The steps of the acceptance that wait for the store, in their order."""


@pytest.fixture
async def replica(redis: ArqRedis) -> AsyncIterator[Parts]:
    await announce(redis, msgspec.structs.replace(WORKER, modalities=(TEXT, IMAGE)), lease=60)
    await put_record(redis, KEY, by="test")
    replica = build(redis, ApiSettings(max_queue=2, max_media_bytes=1000), "r")
    await replica.directory.refresh()
    await replica.keyring.refresh()
    yield replica
    await finish(replica)


def exchange_of(replica: Parts, *, store: bool = True, n: int = 1) -> ChatExchange:
    messages = (
        Message(
            role="user",
            content="hello",
            images=(Image(param="messages[0].content[0]", url="data:image/png;base64,AAAA"),),
        ),
    )
    request = ChatRequest(model=WORKER.model, messages=messages, store=store, n=n)
    return ChatExchange(replica.chat, request, key=KEY, headers={}, messages=b"[]", started_at=time.monotonic())


async def finish(replica: Parts) -> None:
    await replica.job_tasks.finish(PATIENCE)


async def assert_nothing_held(replica: Parts) -> None:
    await finish(replica)
    redis = replica.redis
    assert not list(replica.chat.streams)
    assert await redis.zcard(keys.admitted(KEY.id)) == 0
    assert await redis.zcard(keys.queue(WORKER.model)) == 0
    assert await redis.keys(keys.PREFIX + "stored*") == []
    assert await redis.keys(keys.request("*")) == []


async def test_an_accepted_request_holds_its_place_until_it_ends(replica: Parts) -> None:
    async with exchange_of(replica) as exchange:
        assert list(replica.chat.streams) == [exchange.stream]
        assert await replica.redis.zcard(keys.admitted(KEY.id)) == 1
        assert await replica.redis.zcard(keys.queue(WORKER.model)) == 1
        assert len(await replica.redis.keys(keys.request("*"))) == 1
        assert await replica.chat.stored.running(KEY.id) == [exchange.record.id]
        found = await replica.chat.stored.get(KEY.id, exchange.record.id)
        assert found is not None
        assert (found.input, found.jobs, found.request) == (
            b"[]",
            tuple(exchange.stream.jobs),
            msgspec.structs.replace(exchange.request, messages=()),
        )
        assert "requests" in exchange.counts
    await assert_nothing_held(replica)
    assert b'vinoqueue_requests_total{model="tiny",outcome="aborted"} 1.0' in replica.metrics.page()[0]


async def test_a_request_beyond_the_limits_leaves_those_of_others(replica: Parts) -> None:
    async with exchange_of(replica):
        refused = exchange_of(replica)
        with pytest.raises(RequestRefused) as refusal:
            await refused.__aenter__()
        assert refusal.value.problem.kind is ProblemKind.RATE_LIMITED
        assert "requests" in refused.counts
        assert not refused.accepted
        assert await replica.redis.zcard(keys.admitted(KEY.id)) == 1
    await assert_nothing_held(replica)


async def test_a_request_that_the_queue_refuses_is_settled(replica: Parts) -> None:
    refused = exchange_of(replica, n=3)
    with pytest.raises(RequestRefused) as refusal:
        await refused.__aenter__()
    assert refusal.value.problem.kind is ProblemKind.QUEUE_FULL
    assert "requests" in refused.counts
    assert not refused.accepted
    await assert_nothing_held(replica)


async def test_images_that_never_fit_are_refused_for_good(redis: ArqRedis, replica: Parts) -> None:
    small = build(redis, ApiSettings(max_media_bytes=2), "small")
    await small.directory.refresh()
    await small.keyring.refresh()
    with pytest.raises(RequestRefused) as refusal:
        await exchange_of(small).__aenter__()
    problem = refusal.value.problem
    assert (problem.kind, problem.param) == (ProblemKind.TOO_LARGE, "messages[0].content[0]")
    assert problem.retry_after is None
    await assert_nothing_held(small)


async def test_images_that_do_not_fit_now_are_refused_with_a_time(replica: Parts) -> None:
    request = ChatRequest(model=WORKER.model, messages=(Message(role="user", images=(Image(digest="x"),)),))
    queue = JobQueue(replica.redis, WORKER.model)
    waiting = Job(id="other:0", reply_to="r", request=request, tenant="key-2")
    await queue.enqueue([waiting], limit=1, images={"x": bytes(999)}, max_media_bytes=1000)
    with pytest.raises(RequestRefused) as refusal:
        await exchange_of(replica).__aenter__()
    assert (refusal.value.problem.kind, refusal.value.problem.retry_after) == (ProblemKind.QUEUE_FULL, 1.0)
    await queue.cancel([waiting.id])
    await assert_nothing_held(replica)


async def test_requests_that_fill_the_share_of_their_key_are_refused_with_a_time(
    redis: ArqRedis, replica: Parts
) -> None:
    small = build(redis, ApiSettings(max_queue_bytes=10_000), "small")
    await small.directory.refresh()
    await small.keyring.refresh()
    request = ChatRequest(model=WORKER.model, messages=(Message(role="user", content="x" * 5500),))
    queue = JobQueue(redis, WORKER.model)
    await queue.enqueue([Job(id="a", reply_to="r", request=request, tenant=KEY.id)], limit=1)
    with pytest.raises(RequestRefused) as refusal:
        await exchange_of(small).__aenter__()
    problem = refusal.value.problem
    assert (problem.kind, problem.retry_after) == (ProblemKind.QUEUE_FULL, 1.0)
    assert "share" in problem.message
    await queue.cancel(["a"])
    await assert_nothing_held(replica)


@pytest.mark.parametrize("modalities", [(TEXT,), (TEXT, IMAGE)])
async def test_a_model_that_reads_no_images_gets_none(redis: ArqRedis, modalities: tuple[str, ...]) -> None:
    await announce(redis, msgspec.structs.replace(WORKER, modalities=modalities), lease=60)
    replica = build(redis, ApiSettings(), "r")
    await replica.directory.refresh()
    exchange = exchange_of(replica)
    if IMAGE in modalities:
        async with exchange:
            pass
    else:
        with pytest.raises(RequestRefused) as refusal:
            await exchange.__aenter__()
        assert refusal.value.problem == modality_refused("image_url", "messages[0].content[0]").problem
    await assert_nothing_held(replica)


@pytest.mark.parametrize(("part", "method"), PHASES[1:])
async def test_an_outage_in_a_later_phase_releases_the_earlier_ones(
    replica: Parts, monkeypatch: pytest.MonkeyPatch, part: type, method: str
) -> None:
    original = getattr(part, method)
    lost: list[str] = []

    async def fail_afterwards(*arguments: Any, **options: Any) -> Any:
        reply = await original(*arguments, **options)
        if lost:
            return reply
        lost.append(method)
        raise ConnectionError("the reply was lost")

    monkeypatch.setattr(part, method, fail_afterwards)
    with pytest.raises(RequestRefused) as refusal:
        await exchange_of(replica).__aenter__()
    assert refusal.value.problem.kind is ProblemKind.STORE_UNAVAILABLE
    await assert_nothing_held(replica)


@pytest.mark.parametrize("ran", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("part", "method"), PHASES)
async def test_a_client_that_leaves_in_any_phase_leaves_nothing(
    replica: Parts, monkeypatch: pytest.MonkeyPatch, part: type, method: str, ran: bool
) -> None:
    original = getattr(part, method)
    waiting = asyncio.Event()

    async def hang(*arguments: Any, **options: Any) -> Any:
        if waiting.is_set():
            return await original(*arguments, **options)
        if ran:
            await original(*arguments, **options)
        waiting.set()
        return await asyncio.Event().wait()

    monkeypatch.setattr(part, method, hang)
    accepting = asyncio.create_task(exchange_of(replica).__aenter__())
    await waiting.wait()
    accepting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await accepting
    await assert_nothing_held(replica)


async def test_everything_is_released_although_a_step_fails(
    replica: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise ValueError("broken")

    async with exchange_of(replica):
        monkeypatch.setattr(RequestMetrics, "record", fail)
    await assert_nothing_held(replica)
    assert "was not released completely" in caplog.text


async def test_a_client_that_leaves_cancels_a_request_that_was_to_be_stored(replica: Parts) -> None:
    async with exchange_of(replica) as exchange:
        (job,) = exchange.stream.jobs
        await JobQueue(replica.redis, WORKER.model).claim("w1", used=0, slots=1)
    await finish(replica)
    assert await awaitable(replica.redis.hget(keys.state(job), "cancelled"))
    assert await replica.chat.stored.get(KEY.id, exchange.record.id) is None


async def test_a_replica_that_shuts_down_leaves_what_is_to_be_stored_running(replica: Parts) -> None:
    async with exchange_of(replica) as exchange:
        (job,) = exchange.stream.jobs
        await JobQueue(replica.redis, WORKER.model).claim("w1", used=0, slots=1)
        await replica.chat.streams.drain(0)
    await finish(replica)
    claim = await awaitable(replica.redis.hget(keys.claims(WORKER.model), job))
    assert claim.split() == [b"1", b"w1"], "it was cancelled"
    assert await replica.redis.zcard(keys.admitted(KEY.id)) == 1, "its place is freed when the replica has gone"
    assert await replica.chat.stored.get(KEY.id, exchange.record.id) is not None


async def test_a_response_that_could_not_be_stored_keeps_its_record(
    replica: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it makes the document from the journals."""

    async def fail(*arguments: Any) -> None:
        raise ConnectionError("the store is gone")

    async with exchange_of(replica) as exchange:
        with monkeypatch.context() as patch:
            patch.setattr(ResponseStore, "_run", fail)
            assert not await exchange.store(b"{}")
    await finish(replica)
    assert await replica.chat.stored.get(KEY.id, exchange.record.id) is not None


class UnendedSpan(Span):
    """A span that notes how it ends."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def end(self, at: float, *, name: str = "", error: str = "") -> None:
        self.errors.append(error)


async def test_the_span_of_a_background_response_that_is_refused_ends(replica: Parts) -> None:
    refused, span = exchange_of(replica, n=3), UnendedSpan()
    refused.span = span
    with pytest.raises(RequestRefused):
        await start_background(refused, BackgroundTasks())
    assert span.errors == [ProblemKind.QUEUE_FULL]
    await assert_nothing_held(replica)
