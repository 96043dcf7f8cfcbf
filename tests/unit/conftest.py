"""What holds for the unit tests."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from arq.connections import ArqRedis
from fakeredis import FakeAsyncRedis, FakeServer

from shared.protocol.queue import JobQueue
from tests.support.wall_clock import WallClock


class _Scripts(dict[bytes, bytes]):
    """The scripts of a simulated server, which does not understand the line of flags before a script."""

    def __setitem__(self, digest: bytes, script: bytes) -> None:
        flags, _, rest = script.partition(b"\n")
        super().__setitem__(digest, rest if flags.startswith(b"#!lua") else script)


@pytest.fixture(scope="session", autouse=True)
def scripts_with_flags() -> Iterator[None]:
    """Let simulated servers run scripts that declare flags, as real ones do."""
    make = FakeServer.__init__

    def make_with_flags(server: FakeServer, *arguments: Any, **options: Any) -> None:
        make(server, *arguments, **options)
        server.script_cache = _Scripts()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeServer, "__init__", make_with_flags)
        yield


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """The clock of this process and of the simulated store; only the test advances it."""
    return WallClock(monkeypatch)


@pytest.fixture
def server() -> FakeServer:
    """An empty simulated store."""
    return FakeServer()


@pytest.fixture
async def redis(server: FakeServer) -> AsyncIterator[ArqRedis]:
    """A client of it."""
    fake = FakeAsyncRedis(server=server)
    yield ArqRedis(pool_or_conn=fake.connection_pool, job_deserializer=msgspec.msgpack.decode)
    await fake.aclose()


@pytest.fixture
def queue(redis: ArqRedis) -> JobQueue:
    """The queue of a model in it."""
    return JobQueue(redis, "tiny", lease_ms=60_000)
