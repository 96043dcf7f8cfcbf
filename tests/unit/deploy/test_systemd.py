"""The systemd units: systemd accepts them, and their settings exist and fit together."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shared.runtime.settings import ApiSettings, NodeSettings, WorkerSettings, variable
from tests.support.paths import ROOT

FOLDER = ROOT / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    for unit in UNITS:
        # It checks that the programs exist.
        text = re.sub(r"^(ExecStart=)\S+", r"\1/bin/true", unit.read_text(encoding="utf-8"), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    names = [str(tmp_path / unit.name.replace("@.", "@cpu.")) for unit in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    # Lines about units of this machine have other paths.
    assert [line for line in done.stderr.splitlines() if "vinoqueue" in line] == []


@pytest.mark.parametrize("unit", [unit.name for unit in UNITS])
def test_every_unit_is_confined_and_stops_its_main_process_only(unit: str) -> None:
    lines = (FOLDER / unit).read_text(encoding="utf-8").splitlines()
    for line in ("NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "Restart=always"):
        assert line in lines
    assert any(line.startswith("User=vinoqueue") for line in lines)
    if "store" not in unit:
        assert "KillMode=mixed" in lines
        (patience,) = (int(line.partition("=")[2]) for line in lines if line.startswith("TimeoutStopSec="))
        settings = ApiSettings() if "api" in unit else WorkerSettings()
        assert patience > settings.drain + getattr(settings, "drain_delay", 0.0)


@pytest.mark.parametrize(
    ("file", "kind"), [("api.env", ApiSettings), ("worker.env", WorkerSettings), ("node.env", NodeSettings)]
)
def test_environment_files_name_settings(file: str, kind: type[ApiSettings | WorkerSettings]) -> None:
    lines = (FOLDER / file).read_text(encoding="utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert given.keys() <= {variable(name) for name in kind.model_fields}
    assert given["VINOQUEUE_REDIS_URL"].startswith("unix://")


def test_the_page_installs_locked_requirements_as_make_does() -> None:
    """pip refuses a file with hashes whose packages need one that it does not list, such as model.txt, without
    ``--no-deps``. The commands are run by tests/integration/test_systemd_page.py."""
    page = (ROOT / "docs" / "systemd.md").read_text(encoding="utf-8")
    files = re.findall(r"pip install (.*)-r (requirements/\S+)", page)
    assert {file for _, file in files} >= {f"requirements/{name}.txt" for name in ("api", "worker", "model")}
    assert {options for options, _ in files} == {"--no-deps --require-hashes "}
