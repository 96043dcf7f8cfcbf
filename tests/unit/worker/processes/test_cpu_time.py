"""What a process had of a while, seen on real ones."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.eventually import wait_until
from worker.processes.child import CpuTime

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="available on Linux only")


@contextmanager
def running(code: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{code}"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def state(pid: int) -> str:
    """The letter of the process's state in the process table."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.mark.parametrize(("code", "stop"), [("import time; time.sleep(600)", False), ("while True: pass", True)])
def test_one_that_wants_no_cpu_had_all_of_it(code: str, stop: bool) -> None:
    with running(code) as pid:
        if stop:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state(pid) == ("T" if stop else "S"), "the process to want no CPU")
        own = CpuTime(pid)
        time.sleep(0.05)
        assert own.usable(0.05) == 0.05


def test_a_busy_process_had_what_it_computed() -> None:
    with running("while True: pass") as pid:
        own = CpuTime(pid)
        time.sleep(0.1)
        # However crowded the machine is, it had no hour.
        assert own.usable(3600) < 60


def test_a_process_that_is_gone_can_wait_for_nothing() -> None:
    with running("pass") as pid:
        pass
    assert CpuTime(pid).usable(0.25) == 0.25
