"""The short scenarios, each with all invariants; ``make faults`` runs the others too."""

from dataclasses import replace
from pathlib import Path

import pytest

from faults import swaps
from faults.runner import run
from faults.scenario import Scenario
from faults.scenarios import SCENARIOS
from tests.support.fork_server import fork


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one.ci], ids=lambda one: one.name)
async def test_no_invariant_is_broken(scenario: Scenario, tmp_path: Path) -> None:
    short = replace(scenario, load=replace(scenario.load, requests=4))
    result = await run(short, tmp_path, seed=1, launch=fork)
    assert result.wrong == []
    assert result.completed > 0


def test_swaps_of_models_leave_nothing_behind(tmp_path: Path) -> None:
    assert swaps.run(tmp_path, swaps=8).wrong == []
