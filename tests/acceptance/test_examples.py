"""The scripts in ``examples`` run as their README says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.redis import keys
from tests.support.fleet import PATIENT, SEEING, Fleet, fleet, free_port
from tests.support.paths import MODELS, ROOT
from tests.support.pictures import picture, png
from tests.support.redis_types import at_once

EXAMPLES = ROOT / "examples"
ON_THE_MODEL = {
    "stream.py": r"\[\d+ \+ \d+ tokens\]",
    "functions.py": r"temperature\(.*\) -> \d+ degrees",
    "schema.py": r"Person\(name='",
    "batch.py": r"completed BatchRequestCounts\(completed=3, failed=0, total=3\)\nWhat is a queue\? -> ",
    "responses.py": "nothing was lost",
}
"""What they print with the default model."""


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two simulated workers that see images."""
    with fleet(tmp_path_factory.mktemp("examples"), lease=PATIENT) as running:
        for _ in range(2):
            running.worker(*SEEING)
        running.api()
        yield running


def start(name: str, running: Fleet | None, *arguments: str) -> subprocess.Popen[str]:
    service = {} if running is None else {"OPENAI_BASE_URL": f"http://127.0.0.1:{running.port}/v1"}
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env={**os.environ, "OPENAI_API_KEY": "none", **service},
        stdout=subprocess.PIPE,
        text=True,
    )


def printed(process: subprocess.Popen[str]) -> str:
    output = process.communicate()[0]
    assert process.returncode == 0, output
    return output


def test_the_list_is_complete() -> None:
    listed = re.findall(r"^\| `(\w+\.py)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert {*listed} == {*ON_THE_MODEL, "images.py", "failover.py", "own_model.py"}


@pytest.mark.parametrize("name", ON_THE_MODEL)
def test_an_example_with_the_default_model(real_fleet: Fleet, name: str) -> None:
    assert re.search(ON_THE_MODEL[name], printed(start(name, real_fleet)))


def test_a_picture(two_workers: Fleet, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(png(picture(1).pixels()))
    assert printed(start("images.py", two_workers, str(tmp_path / "picture.png"))).strip()


def test_a_worker_that_ends_during_the_stream(two_workers: Fleet) -> None:
    running = start("failover.py", two_workers, "[[tokens 600]]")
    assert running.stdout is not None
    assert running.stdout.readline() == "100 chunks\n"
    with two_workers.redis() as store:
        (job,) = at_once(store.zrange(keys.inflight("sim"), 0, -1))
        claim = at_once(store.hget(keys.claims("sim"), job))
    (serving,) = (one for one in two_workers.processes if f"-{one.popen.pid}-" in claim.decode())
    serving.kill()
    assert re.search("600 chunks\nthe answer ended with 'stop'", printed(running))


def test_a_model_of_ones_own() -> None:
    output = printed(start("own_model.py", None, str(MODELS / "qwen2-byte-level-bpe"), str(free_port())))
    assert "serves qwen2-byte-level-bpe" in output
