"""pytest plugin: a run ends if one of its processes crashes, and names the running tests if it takes too long."""

import faulthandler
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import Scheduling

LIMIT = "TESTS_MINUTES"
"""The environment variable for the maximum duration of a run in minutes."""

_started: dict[str, float] = {}
"""Start of each running test (monotonic seconds)."""


def pytest_configure(config: pytest.Config) -> None:
    """Start the timers: the main process names the running tests, then each process prints its stacks and exits."""
    if LIMIT in os.environ:
        seconds = float(os.environ[LIMIT]) * 60
        stderr = os.dup(2)  # tests replace file descriptor 2
        if hasattr(config, "workerinput"):
            faulthandler.dump_traceback_later(seconds + 1, file=stderr, exit=True)
        else:
            # Later than the other processes, which start later.
            faulthandler.dump_traceback_later(seconds + 60, file=stderr, exit=True)
            timer = threading.Timer(seconds, _name_tests, [stderr])
            timer.daemon = True
            timer.start()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note the start of a test."""
    _started[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Forget a test that has ended."""
    _started.pop(nodeid, None)


@pytest.hookimpl(optionalhook=True, trylast=True)
def pytest_handlecrashitem(report: pytest.TestReport, sched: "Scheduling") -> None:
    """Report the test that was running, and end the run: with ``--dist loadfile``, a replacement can wait forever."""
    sched.config.hook.pytest_runtest_logreport(report=report)
    pytest.exit("a test process crashed", returncode=1)


def _name_tests(stderr: int) -> None:
    now = time.monotonic()
    lines = [f"  {test} ({now - started:.0f} s)\n" for test, started in _started.items()]
    text = f"\nThe run took longer than {os.environ[LIMIT]} minutes ({LIMIT}). Running tests:\n{''.join(lines)}\n"
    os.write(stderr, text.encode())
