"""Runs of pytest that cannot go on: a crashed test process and a test that hangs end them."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.eventually import PATIENCE
from tests.support.run_limit import LIMIT

ROOT = Path(__file__).parents[2]

CRASHES = """
import os, signal
def test_passes(): pass
def test_crashes(): os.kill(os.getpid(), signal.SIGSEGV)
def test_after(): pass
"""
HANGS = """
import threading
def test_hangs(): threading.Event().wait()
"""


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder as ``make test`` does."""
    (command,) = re.findall(r"^PYTEST := \$\(BIN\)/python (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    arguments = command.replace("-n auto", "-n 2").split()
    return subprocess.run(
        [
            *(sys.executable, *arguments, "-p", "xdist", "-p", "tests.support.run_limit"),
            *("--rootdir", folder, folder),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name}
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
    )


def test_a_crashed_test_process_ends_the_run(tmp_path: Path) -> None:
    """With a replacement of the process, the run waited forever."""
    (tmp_path / "test_crashes.py").write_text(CRASHES)
    for number in range(6):
        (tmp_path / f"test_hangs_{number}.py").write_text(HANGS)
    ended = run(tmp_path)
    assert ended.returncode == 1, ended.stdout
    assert "test_crashes.py::test_crashes" in ended.stdout
    assert re.search(r"1 failed, 1 passed in", ended.stdout), ended.stdout


def test_a_run_that_takes_too_long_names_the_running_tests(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    for limit in (0.1, 0.5, 2.5):  # minutes; until the machine is fast enough to start the test within it
        ended = run(tmp_path, **{LIMIT: str(limit)})
        assert ended.returncode != 0
        if re.search(r"Running tests:\n  test_hangs.py::test_hangs \(\d+ s\)", ended.stderr):
            break
    else:
        raise AssertionError(ended.stderr)
    assert "in test_hangs" in ended.stderr
