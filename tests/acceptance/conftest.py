"""The real default model, once behind real processes and once in the test's own: loading it takes seconds."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_driver import Bench
from tests.support.fleet import PATIENT, Fleet, exact, fleet
from tests.support.paths import MODELS
from worker.openvino.logits.operation import LogitsHook

MODEL = "SmolLM2-135M-Instruct"


@pytest.fixture(scope="session")
def real_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One API replica and one worker with the default model.

    It computes exactly, so that a text does not depend on what else is in the batch and can be compared. On slow CPUs,
    the grammar of Codex's ``apply_patch`` takes longer to compile than the default limit.
    """
    with fleet(tmp_path_factory.mktemp("real"), lease=PATIENT) as running:
        running.worker(*exact("default", "--grammar-seconds", "1"))
        running.api()
        yield running


@cache
def loaded(*models: Path) -> tuple[Bench, Any]:
    """An engine with a model, the default one if omitted, and what listens to its logits."""
    return Bench(*models, logits="on"), LogitsHook.listener


def checked(engine: tuple[Bench, Any]) -> Iterator[Bench]:
    """Lend an engine. A process has one listener, which is that of the engine loaded last."""
    bench, LogitsHook.listener = engine
    failures = LogitsHook.failures
    yield bench
    assert not bench.engine.busy()
    assert bench.engine.gauges().lost_rows == 0
    assert LogitsHook.failures == failures


@pytest.fixture
def real_engine() -> Iterator[Bench]:
    """An engine with the default model."""
    yield from checked(loaded())


@pytest.fixture
def tiny() -> Iterator[Bench]:
    """An engine with a tiny model, whose tokens take a sixtieth of the time."""
    yield from checked(loaded(MODELS / "qwen2-byte-level-bpe"))
