"""URLs of the store, and connections to it that end suddenly."""

import asyncio

import pytest
import uvloop
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import AuthenticationError, ConnectionError

from shared.redis.client import connect
from tests.support.eventually import PATIENCE
from tests.unit.shared.redis.fake_redis_server import fake_redis_server


def test_a_plain_url() -> None:
    options = connect("redis://user:secret@store:6380/2").connection_pool.connection_kwargs
    assert (options["host"], options["port"], options["db"]) == ("store", 6380, 2)
    assert (options["username"], options["password"]) == ("user", "secret")


def test_a_socket_has_no_tcp_options() -> None:
    assert "socket_keepalive" not in connect("unix:///run/store.sock?db=1").connection_pool.connection_kwargs


def test_sentinels() -> None:
    pool = connect("redis+sentinel://:p%40ss@one,two:27000/mymaster/3").connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "mymaster"
    assert (pool.connection_kwargs["db"], pool.connection_kwargs["password"]) == (3, "p@ss")
    addresses = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(address["host"], address["port"]) for address in addresses] == [("one", 26379), ("two", 27000)]


def test_a_connection_that_ends_suddenly_is_a_connection_error_under_uvloop() -> None:
    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def ask() -> None:
        async with await asyncio.start_server(stay, "127.0.0.1", 0) as server:
            client = connect(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
            connection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call] # untyped in redis-py
            await connection._connect()
            connection._writer.transport.abort()
            await asyncio.sleep(0)
            with pytest.raises(ConnectionError):
                await connection.send_command("PING", check_health=False)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask())


async def test_a_missing_password_fails_a_pipeline_after_a_few_attempts() -> None:
    async with fake_redis_server(tls=False) as store:
        store.locked = True
        client = connect(store.url)
        pipe = client.pipeline(transaction=False)
        pipe.echo("x")
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(AuthenticationError):
                await pipe.execute()
        await client.aclose()
        assert len(store.connections) < 10
