"""The probes of workers and nodes in containers, with the commands of the chart and of the image."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import get_args

import pytest

from shared.protocol.registry import WorkerStatus
from shared.runtime.health_file import HealthFile
from tests.support.dockerfile import FILE as DOCKERFILE
from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet, Process
from tests.support.paths import ROOT

FILE = "/tmp/health"
_TEMPLATE = ROOT / "deploy" / "helm" / "vinoqueue" / "templates" / "_helpers.tpl"
LOADING, SERVING, FAILING = (True, False), (True, True), (False, False)
"""Whether a process is healthy by the image's check, and ready by the chart's."""


class Probed:
    """The fleet's store, and a worker or node with a health file."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.file = fleet.folder / "health"

    def start(self, *arguments: str) -> Process:
        return self.fleet.start(*arguments, "--engine", "simulated", VINOQUEUE_HEALTH_FILE=str(self.file))

    def probe(self) -> tuple[bool, bool]:
        (check,) = re.findall(r"^HEALTHCHECK .* CMD (grep .*)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
        (probe,) = re.findall(r"command: \[sh, -c, '(.*)'\]", _TEMPLATE.read_text(encoding="utf-8"))
        return self._succeeds(check), self._succeeds(probe)

    def _succeeds(self, command: str) -> bool:
        assert command.count(FILE) == 1
        command = command.replace(FILE, str(self.file))
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False, timeout=PATIENCE)
        return done.returncode == 0

    def until(self, expected: tuple[bool, bool]) -> None:
        self.fleet.until(lambda: self.probe() == expected, f"the probes to say {expected}")


@pytest.fixture
def probed(empty_fleet: Fleet) -> Probed:
    running = Probed(empty_fleet)
    assert running.probe() == FAILING, "there is no file yet"
    return running


def test_the_image_takes_a_worker_for_healthy_unless_it_fails_and_the_chart_for_ready_if_it_serves(
    probed: Probed,
) -> None:
    expected = {"loading": LOADING, "serving": SERVING, "draining": LOADING, "failing": FAILING}
    assert expected.keys() == set(get_args(WorkerStatus))
    for status, found in expected.items():
        HealthFile(str(probed.file)).write(status)
        assert probed.probe() == found


@pytest.mark.parametrize(("source", "expected"), [("x", SERVING), ("[[hang load]]", LOADING)])
def test_a_worker_writes_its_status(probed: Probed, source: str, expected: tuple[bool, bool]) -> None:
    probed.start("worker", "--model", f"sim={source}")
    probed.until(expected)


def test_a_worker_that_hangs_or_has_no_store_fails_its_probes(probed: Probed) -> None:
    worker = probed.start("worker", "--model", "sim")
    probed.until(SERVING)
    worker.signal(signal.SIGSTOP)
    assert probed.probe() == SERVING
    long_ago = time.time() - 120
    os.utime(probed.file, (long_ago, long_ago))
    assert probed.probe() == FAILING
    worker.signal(signal.SIGCONT)
    probed.until(SERVING)
    assert worker.stop() == 0
    assert probed.probe() == LOADING, "it has drained"


def test_a_file_that_cannot_be_written_is_named_and_harms_nothing_else(probed: Probed) -> None:
    probed.file = Path("/proc/health")
    worker = probed.start("worker", "--model", "sim")
    probed.fleet.api()
    probed.fleet.until(lambda: probed.fleet.workers("serving"), "the worker to serve")
    assert worker.log.read_text().count("health file can't be written: ") == 1


def test_the_health_file_of_a_node_is_not_that_of_its_workers(probed: Probed) -> None:
    catalogue = probed.fleet.folder / "models.toml"
    catalogue.write_text('[models.broken]\nsource = "[[hang load]]"\nkeep = "always"\n', encoding="utf-8")
    node = probed.start("node", "--models", str(catalogue), "--memory", "1GB", "--swap-drain", "0.2")
    probed.fleet.api()
    probed.fleet.until(lambda: probed.fleet.workers("loading"), "the node's worker to load")
    probed.until(SERVING)
    (worker,) = probed.fleet.workers("loading")
    environment = Path(f"/proc/{worker['pid']}/environ").read_bytes().split(b"\0")
    assert b"VINOQUEUE_HEALTH_FILE=" in environment
    assert node.stop() == 0
