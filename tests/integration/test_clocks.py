"""Processes whose wall clocks differ: only the store's clock counts between them."""

import time

import msgspec
import pytest
from arq.connections import ArqRedis

from api.keys import ApiKey, Keyring
from api.keys.store import new_key, put_record, rotate
from api.responses.documents import find
from api.stored.record import Selection
from shared.protocol.registry import announce, read_registry
from shared.redis.clock import store_time
from tests.support.jobs import WORKER
from tests.support.stored import OWNER, completion, put, response, response_store

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
    await announce(redis, WORKER, lease=60)
    monkeypatch.setattr(time, "time", wrong)
    await announce(redis, msgspec.structs.replace(WORKER, id="w2"), lease=60)
    monkeypatch.setattr(time, "time", lambda: wrong() - skew)
    await announce(redis, msgspec.structs.replace(WORKER, id="w3"), lease=60)
    assert [worker.id for worker in (await read_registry(redis)).workers] == ["w1", "w2", "w3"]


@pytest.mark.usefixtures("skew")
async def test_a_key_ends_by_the_clock_of_the_store(redis: ArqRedis) -> None:
    now = await store_time(redis)
    template = ApiKey(id="-", digest="0" * 64)
    valid, valid_secret = new_key(msgspec.structs.replace(template, expires=now + 60))
    expired, expired_secret = new_key(msgspec.structs.replace(template, expires=now - 60))
    rotated, old_secret = new_key(template)
    for one in (valid, expired, rotated):
        await put_record(redis, one, by="test")
    await rotate(redis, rotated.id, grace=60, by="test")
    keyring = Keyring(redis, plain="", file="", required=False)
    await keyring.refresh()
    found = [keyring.find([secret]) for secret in (valid_secret, expired_secret, old_secret)]
    assert [one.id if one else None for one in found] == [valid.id, None, rotated.id]


async def test_a_replica_whose_clock_is_wrong_removes_no_stored_completions(
    redis: ArqRedis, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = response_store(redis)
    wrong = time.time
    for number, ahead in enumerate((0.0, skew, 0.0)):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: wrong() - skew + ahead)
        await put(store, completion(number))
    page, _ = await store.select(OWNER, Selection())
    assert [one.id for one in page] == [completion(number).id for number in range(3)]


@pytest.mark.usefixtures("skew")
async def test_a_reader_whose_clock_is_wrong_takes_no_response_for_lost(redis: ArqRedis) -> None:
    store = response_store(redis)
    await store.create(OWNER, response())
    found = await find(store, OWNER, response().id)
    assert found is not None
    assert not found.document
