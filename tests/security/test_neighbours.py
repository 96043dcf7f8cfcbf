"""A greedy key must not slow, fill or starve another (`make faults ARGS=neighbours` tries longer)."""

import os
import random
from pathlib import Path

from faults.neighbours import run, summary
from tests.support.fuzzing import cases

SECONDS = 3
SEED = int(os.environ.get("NEIGHBOURS_SEED", "20261124"))


async def test_a_greedy_key_leaves_others_their_share(tmp_path: Path) -> None:
    seed = SEED if cases(1) == 1 else random.randrange(2**32)
    report = await run(tmp_path, seed=seed, seconds=cases(SECONDS))
    assert not report.wrong, f"NEIGHBOURS_SEED={seed}\n{summary(report)}"
