"""The code of the tutorials runs as it is written."""

from pathlib import Path

import pytest

from tests.support.fleet import Fleet
from tests.support.tutorials import blocks, run


@pytest.mark.parametrize(
    ("name", "count", "printed"),
    [
        ("first-chat", 4, "The capital of France is Paris"),
        ("langchain", 2, "country="),
        ("batch-jobs", 3, "0 The capital of France is Paris"),
    ],
)
def test_a_tutorial(real_fleet: Fleet, tmp_path: Path, name: str, count: int, printed: str) -> None:
    outputs = [run(block, real_fleet, tmp_path) for block in blocks(name)]
    assert len(outputs) == count
    assert any(printed in output for output in outputs)
