"""A fixture of a small fleet."""

from collections.abc import Iterator, Sequence
from typing import Literal

import pytest

from tests.support.fleet import Fleet, fleet


def fleet_fixture(
    *worker: str, api: Sequence[str] = (), scope: Literal["function", "module", "session"] = "module"
) -> object:
    """Return a fixture: a fleet of one worker, simulated by default, and one API replica, with these options."""

    @pytest.fixture(scope=scope)
    def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
        with fleet(tmp_path_factory.mktemp("fleet")) as running:
            running.worker(*worker)
            running.api(*api)
            yield running

    return running
