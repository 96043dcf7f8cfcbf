"""Connections for transactions after a planned failover, behind an address that leads new ones to the new master."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from arq.connections import ArqRedis
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError

from faults.links import Links
from shared.redis.client import connect
from tests.support.eventually import eventually
from tests.support.fleet import free_port
from tests.support.redis_types import command
from tests.support.store import Store


@pytest.fixture
async def links(tmp_path: Path) -> AsyncIterator[Links]:
    """A master and a replica, behind an address."""
    master = Store(tmp_path / "master", free_port(), "--repl-diskless-sync-delay", "0")
    master.start()
    links = Links("handover", master, tmp_path)
    yield links
    await links.close()


async def hand_over(links: Links) -> None:
    """Have the replica and the master change places."""
    assert links.standby is not None
    replica = links.standby.replica
    command(links.master.client(), "FAILOVER", "TO", "127.0.0.1", str(replica.port))
    await eventually(lambda: command(replica.client(), "ROLE")[0] == b"master", "the replica to be promoted")
    links.hand_over()


def write(pipe: Pipeline) -> None:
    pipe.multi()  # type: ignore[no-untyped-call] # untyped in redis-py
    pipe.set("written", 2)


async def server_of(client: ArqRedis) -> int:
    """The port of the server to which the connection of the pool leads."""
    async with client.pipeline(transaction=False) as pipe:
        pipe.config_get("port")
        return int((await pipe.execute())[0]["port"])


async def test_a_transaction_that_was_refused_does_not_keep_the_demoted_server(links: Links) -> None:
    url, _ = await links.open()
    client = connect(url)
    await client.transaction(write, "written")
    await hand_over(links)
    with pytest.raises(RedisError):
        await client.transaction(write, "written")
    await client.transaction(write, "written")
    assert links.master.client().get("written") == b"2"
    await client.aclose(close_connection_pool=True)


async def test_a_connection_in_use_during_the_handover_does_not_keep_the_demoted_server(links: Links) -> None:
    url, _ = await links.open()
    client = connect(url)
    await client.set("written", 1)
    async with client.pipeline() as held:
        await held.watch("written")
        await hand_over(links)
        await client.set("written", 2)
    assert await server_of(client) == links.master.port
    await client.aclose(close_connection_pool=True)


async def test_a_script_that_is_used_first_during_a_failover_runs(links: Links) -> None:
    url, _ = await links.open()
    client = connect(url)
    await client.set("a", 1)
    await hand_over(links)
    script = client.register_script("return redis.call('SET', KEYS[1], 'written')")
    await script(["a"], [])
    assert links.master.client().get("a") == b"written"
    await client.aclose(close_connection_pool=True)
