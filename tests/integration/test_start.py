"""The command starts this installation's packages, or says that it can't."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = ("api", "cli", "shared", "worker")


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Print the version by the module in ``folder``."""
    return subprocess.run(
        [sys.executable, folder / "vinoqueue.py", "version"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder with packages of other projects, and with an older OpenVINO as that of setupvars.sh."""
    for name in (*PACKAGES, "openvino", "click"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('of another project')")
    return tmp_path


def test_variables_for_other_programs_do_not_count(foreign: Path) -> None:
    done = run(ROOT, PYTHONPATH=str(foreign), PYTHONHOME=sys.base_prefix)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_of_another_project_is_named(foreign: Path, tmp_path: Path, name: str) -> None:
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(ROOT / "vinoqueue.py", site)
    for package in PACKAGES:
        shutil.copytree((foreign if package == name else ROOT) / package, site / package)
    done = run(site)
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: Python finds a package '{name}' of another project in {site / name}. Install Vinoqueue in a virtual "
        "environment of its own, with nothing else in it (in a checkout: make clean install).\n"
    )


def test_a_package_that_comes_first_is_named(foreign: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(foreign)!r}); import vinoqueue; vinoqueue.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert f"a package 'api' of another project in {foreign / 'api'}" in done.stderr
