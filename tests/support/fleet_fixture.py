"""A fixture of a small fleet."""

from collections.abc import Iterator, Sequence
from typing import Literal

import pytest

from tests.support.fleet import PATIENT, Fleet, fleet


def fleet_fixture(
    *worker: str,
    api: Sequence[str] = (),
    scope: Literal["function", "module", "session"] = "module",
    lease: float | None = PATIENT,
) -> object:
    """Return a fixture: a fleet of one worker, simulated by default, and one API replica, with these options.

    ``lease`` is that of :class:`Fleet`: None where processes die, or heartbeats are waited for.
    """

    @pytest.fixture(scope=scope)
    def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
        with fleet(tmp_path_factory.mktemp("fleet"), lease=lease) as running:
            running.worker(*worker)
            running.api(*api)
            yield running

    return running
