"""A greedy key must not slow, fill or starve another (`make faults ARGS=neighbours` tries longer)."""

import os
import random
from pathlib import Path

import pytest

from faults import slots
from faults.neighbours import run, summary
from tests.support.fleet import PATIENT
from tests.support.fork_server import fork
from tests.support.fuzzing import cases

SECONDS = 3
SEED = int(os.environ.get("NEIGHBOURS_SEED", "20261124"))


async def test_a_greedy_key_leaves_others_their_share(tmp_path: Path) -> None:
    seed = SEED if cases(1) == 1 else random.randrange(2**32)
    report = await run(tmp_path, seed=seed, seconds=cases(SECONDS))
    assert not report.wrong, f"NEIGHBOURS_SEED={seed}\n{summary(report)}"


@pytest.mark.parametrize(("kind", "beside"), [("can leave", slots.SLOTS), ("can't leave", slots.SLOTS // 2)])
async def test_a_key_with_requests_for_all_slots_leaves_slots_to_another(
    tmp_path: Path, kind: str, beside: int
) -> None:
    shares = await slots.run(tmp_path, kind, seconds=0, lease=PATIENT, launch=fork)
    assert not shares.wrong
    assert (shares.alone, shares.beside) == (slots.SLOTS, beside)
