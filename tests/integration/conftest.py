"""A fleet of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, fleet


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
