"""Processes whose wall clocks differ: only the store's clock counts between them."""

import asyncio
import time

import msgspec
import pytest
from arq.connections import ArqRedis

from api.build import build
from api.keys import ApiKey, Keyring
from api.keys.store import new_key, put_key, rotate
from api.outbox import Outbox, PendingCompletion
from api.stored import CompletionStore, Selection, StoredCompletion
from shared.protocol.events import Delta, Finished, Started, encode_event
from shared.protocol.registry import announce_worker, read_registry
from shared.protocol.request import ChatRequest, Message
from shared.redis import keys
from shared.redis.clock import store_time
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import cancel_all
from tests.support.eventually import eventually
from tests.support.jobs import WORKER
from tests.support.redis_types import awaitable

HOUR = 3600


@pytest.fixture(params=[-HOUR, 120, HOUR])
def skew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Set this process's wall clock wrong, by so many seconds."""
    seconds: float = request.param
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + seconds)
    return seconds


async def test_a_worker_whose_clock_is_wrong_erases_nobody(
    redis: ArqRedis, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = time.time
    monkeypatch.setattr(time, "time", lambda: wrong() - skew)
    await announce_worker(redis, WORKER, lease=60)
    monkeypatch.setattr(time, "time", wrong)
    await announce_worker(redis, msgspec.structs.replace(WORKER, id="w2"), lease=60)
    monkeypatch.setattr(time, "time", lambda: wrong() - skew)
    await announce_worker(redis, msgspec.structs.replace(WORKER, id="w3"), lease=60)
    assert [worker.id for worker in (await read_registry(redis)).workers] == ["w1", "w2", "w3"]


@pytest.mark.usefixtures("skew")
async def test_a_key_ends_by_the_clock_of_the_store(redis: ArqRedis) -> None:
    now = await store_time(redis)
    template = ApiKey(id="-", digest="0" * 64)
    valid, valid_secret = new_key(msgspec.structs.replace(template, expires=now + 60))
    expired, expired_secret = new_key(msgspec.structs.replace(template, expires=now - 60))
    rotated, old_secret = new_key(template)
    for one in (valid, expired, rotated):
        await put_key(redis, one)
    await rotate(redis, rotated.id, grace=60)
    keyring = Keyring(redis, plain="", file="", required=False)
    await keyring.refresh()
    found = [keyring.find([secret]) for secret in (valid_secret, expired_secret, old_secret)]
    assert [one.id if one else None for one in found] == [valid.id, None, rotated.id]


async def test_a_replica_whose_clock_is_wrong_removes_no_stored_completions(
    redis: ArqRedis, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CompletionStore(redis, ttl=60, limit=10, max_bytes=2**26)
    wrong = time.time
    for number, ahead in enumerate((0.0, skew, 0.0)):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: wrong() - skew + ahead)
        completion = StoredCompletion(id=f"c{number}", model="tiny", document=b'{"id":"x"}', messages=b"[]")
        assert await store.save("", completion)
    page = await store.select("", Selection())
    assert page is not None
    assert [one.id for one in page[0]] == ["c0", "c1", "c2"]


@pytest.mark.usefixtures("skew")
async def test_a_replica_whose_clock_is_wrong_finishes_the_pending_completions_of_others(redis: ArqRedis) -> None:
    accepted = await store_time(redis)
    pending = PendingCompletion(
        answer_id="a1",
        accepted=accepted,
        request=ChatRequest(model="tiny", messages=(Message(role="user", content="hello"),), store=True),
        messages=b'[{"role":"user","content":"hello"}]',
        jobs=("job-a1",),
    )
    await Outbox(redis, "gone", max_duration=600).add(pending)
    await redis.set(keys.payload("job-a1"), b"payload")
    replica = build(redis, ApiSettings(lease=0.15), "heir")
    relay = replica.relay
    running = asyncio.create_task(replica.completion_recovery.run())
    try:
        await eventually(relay.streams)
        (answer,) = relay.streams()
        await relay.recovered()
        # The worker goes on: a response that was timed out by the wrong clock has ended by now.
        for event in (Started("w1", 3, "fp"), Delta(0, (1,), "Hi"), Finished(1, "stop")):
            await awaitable(redis.rpush(keys.journal("job-a1"), encode_event(event)))
        relay.catch_up(answer)
        await eventually(lambda: not relay.streams())
        assert await replica.stored.get("", "chatcmpl-a1") is not None
    finally:
        await cancel_all([running])
        await replica.completion_recovery.aclose()
        await replica.job_tasks.finish(3.0)
        await relay.close_all()
