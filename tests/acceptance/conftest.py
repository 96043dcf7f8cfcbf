"""The real default model behind real processes, once for all acceptance tests."""

import json
from collections.abc import Iterator

import pytest

from tests.support.engine_driver import ONE_THREAD
from tests.support.fleet import Fleet, fleet

MODEL = "SmolLM2-135M-Instruct"


@pytest.fixture(scope="session")
def real_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One API replica and one worker with the default model.

    It computes exactly, so that a text does not depend on what else is in the batch and can be compared.
    """
    with fleet(tmp_path_factory.mktemp("real")) as running:
        running.worker("--precision", "exact", "--plugin-config", json.dumps(ONE_THREAD))
        running.api()
        yield running
