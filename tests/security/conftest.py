"""A fleet of its own for a test that fills or starves a replica."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, fleet


@pytest.fixture
def empty_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A store and nothing else."""
    with fleet(tmp_path) as running:
        yield running
