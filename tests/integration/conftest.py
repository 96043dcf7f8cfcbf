"""Fleets and stores of real processes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from arq.connections import ArqRedis

from shared.redis.client import connect
from tests.support.fleet import Fleet, fleet, free_port
from tests.support.store import Store


@pytest.fixture
def empty_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A store and nothing else."""
    with fleet(tmp_path) as running:
        yield running


@pytest.fixture
def small_fleet(empty_fleet: Fleet) -> Fleet:
    """One API replica and one simulated worker."""
    empty_fleet.worker()
    empty_fleet.api()
    return empty_fleet


@pytest.fixture(scope="session")
def session_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One API replica and one simulated worker, shared by the tests that leave them as they were."""
    with fleet(tmp_path_factory.mktemp("fleet")) as running:
        running.worker()
        running.api()
        yield running


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store and nothing else, for tests of single parts."""
    running = Store(tmp_path_factory.mktemp("store"), free_port())
    running.start()
    yield running
    running.kill()


@pytest.fixture
async def redis(store: Store) -> AsyncIterator[ArqRedis]:
    """A client of the store, which is empty."""
    client = connect(store.url)
    await client.flushall()
    yield client
    await client.aclose(close_connection_pool=True)
