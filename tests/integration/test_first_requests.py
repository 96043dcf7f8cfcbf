"""What a replica knows of the registry when it starts to serve."""

import asyncio
import json

from api.build import build
from api.main import running
from shared.protocol.registry import announce
from shared.redis.client import connect
from shared.redis.reconnections import Reconnections
from shared.runtime.settings import ApiSettings
from tests.support.fleet import Fleet, free_port
from tests.support.jobs import WORKER
from tests.support.store import Store


async def test_the_registry_is_read_before_the_replica_serves(store: Store) -> None:
    redis = connect(store.url)
    await redis.flushall()
    await announce(redis, WORKER, lease=60)
    parts = build(connect(store.url), ApiSettings(redis_url=store.url), "fresh")
    async with running(parts, "http://127.0.0.1:0", Reconnections()):
        assert list(parts.directory.fleet.serving()) == ["tiny"]
    await redis.aclose(close_connection_pool=True)


async def test_a_replica_starts_without_a_store() -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    parts = build(connect(url), ApiSettings(redis_url=url), "alone")
    async with running(parts, "http://127.0.0.1:0", Reconnections()):
        assert not parts.directory.reachable


def test_an_empty_list_of_models_is_read_again(empty_fleet: Fleet) -> None:
    empty_fleet.api()
    assert json.loads(empty_fleet.request("GET", "/v1/models")[2])["data"] == []

    async def start_a_worker() -> None:
        redis = connect(empty_fleet.url)
        await announce(redis, WORKER, lease=60)
        await redis.aclose(close_connection_pool=True)

    asyncio.run(start_a_worker())
    # Long before the next refresh.
    assert [model["id"] for model in json.loads(empty_fleet.request("GET", "/v1/models")[2])["data"]] == ["tiny"]
