"""Fleets and stores of real processes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from arq.connections import ArqRedis

from shared.redis.client import connect
from tests.support.fleet import PATIENT, Fleet, fleet, free_port
from tests.support.fleet_fixture import fleet_fixture
from tests.support.store import Store

small_fleet = fleet_fixture(scope="function", lease=None)
"""One API replica and one simulated worker, which tests end."""

session_fleet = fleet_fixture(scope="session")
"""One API replica and one simulated worker, shared by the tests that leave them as they were."""


@pytest.fixture
def patient_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A store and nothing else, for processes whose leases bear a busy machine."""
    with fleet(tmp_path, lease=PATIENT) as running:
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
