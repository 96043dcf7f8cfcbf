"""The processes of a fleet do not outlive the process that runs the tests, however that ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.runtime.processes import die_with_parent
from tests.support.eventually import wait_until
from tests.support.processes import family

PROGRAM = """
import sys
from pathlib import Path
from tests.support.fleet import Fleet, fork
fleet = Fleet(Path(sys.argv[1]), launch=fork)
fleet.worker()
fleet.api()
print("started", flush=True)
sys.stdin.read()
"""


def _runs(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parent")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_fleet_ends_with_its_tests(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    ) as tests:
        assert tests.stdout is not None
        assert tests.stdout.readline() == "started\n"
        processes = family(tests.pid)
        assert len(processes) > 4  # the tests, the store, the API, the worker and its subprocesses
        tests.send_signal(number)
    wait_until(lambda: not any(map(_runs, processes)), "the fleet to end")
