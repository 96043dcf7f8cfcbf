"""Fleets and stores of real processes."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from arq.connections import ArqRedis

from shared.redis.client import connect
from tests.support.debian import BareDebian, bootstrap, lacking
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
def runtime() -> Iterator[Path]:
    """A directory for temporary files; not in ``tmp_path``, whose name may be too long for a socket."""
    with TemporaryDirectory(prefix="vq-") as folder:
        yield Path(folder)


@pytest.fixture
async def redis(store: Store) -> AsyncIterator[ArqRedis]:
    """A client of the store, which is empty."""
    client = connect(store.url)
    await client.flushall()
    yield client
    await client.aclose(close_connection_pool=True)


@pytest.fixture(scope="session")
def debian_systems() -> Iterator[Callable[[str], Path]]:
    """Bare Debian systems by suite, each made once."""
    with TemporaryDirectory(prefix="debian-") as folder:
        yield cache(lambda suite: bootstrap(suite, Path(folder) / suite))


@pytest.fixture
def bare_debian(tmp_path: Path, debian_systems: Callable[[str], Path]) -> Callable[[str], BareDebian]:
    """Gives the test its own bare Debian of a suite."""
    if reason := lacking():
        pytest.skip(reason)
    return lambda suite: BareDebian(debian_systems(suite), tmp_path / suite)
