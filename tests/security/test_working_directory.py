"""Packages in the working directory are never imported: they may be anybody's, and ours have common names."""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shared.runtime.processes import module_command
from tests.support.eventually import PATIENCE, wait_until
from tests.support.fleet import SIMULATED, execute, fleet, free_port

ROOT = Path(__file__).parents[2]
FOREIGN = ("api", "worker", "shared", "cli", "bench", "msgspec", "redis")


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory full of packages that leave a trace when they are imported."""
    folder = tmp_path / "foreign"
    for name in FOREIGN:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(
            "import pathlib\n"
            "pathlib.Path(__file__).with_name('imported').touch()\n"
            "raise SystemExit('a foreign package was imported')\n"
        )
    monkeypatch.chdir(folder)
    return folder


def traces(folder: Path) -> list[Path]:
    return list(folder.glob("*/imported"))


def test_worker_and_api_start_in_a_directory_with_foreign_packages(foreign: Path, tmp_path: Path) -> None:
    with fleet(tmp_path, launch=execute) as running:
        running.worker()
        running.api()
        body = '{"model": "sim", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}'
        status, _, answer = running.request("POST", "/v1/chat/completions", body)
        assert status == 200, answer
    assert traces(foreign) == []


def test_up_starts_in_a_directory_with_foreign_packages(foreign: Path, tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    with log.open("wb") as output, TemporaryDirectory(prefix="vq-") as runtime:
        # Commands in other tests must not find it.
        up = subprocess.Popen(
            [sys.executable, "-P", "-m", "cli.main", "up", "--port", str(free_port()), *SIMULATED],
            env={**os.environ, "TMPDIR": runtime},
            stdout=output,
            stderr=output,
        )
        try:
            wait_until(
                lambda: up.poll() is not None or "Vinoqueue serves sim" in log.read_text(),
                "everything to be ready",
                details=log.read_text,
            )
            assert up.poll() is None, log.read_text()
        finally:
            up.terminate()
            up.wait(PATIENCE)
    assert traces(foreign) == []


def test_pythonpath_still_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere.py").write_text("print('found')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(module_command("elsewhere"), capture_output=True, text=True, check=True)
    assert done.stdout == "found\n"


@pytest.mark.parametrize("room", ["api", "worker", "shared", "cli", "bench"])
def test_no_other_way_of_starting_a_module_is_used(room: str) -> None:
    """Also where it takes the real engine or a measurement to start one."""
    started = re.compile(r'sys\.executable,\s*"-[mc]"')
    offenders = [path.name for path in sorted((ROOT / room).rglob("*.py")) if started.search(path.read_text())]
    assert offenders == []
