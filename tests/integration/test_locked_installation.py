"""What pip does with the locked requirements."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.wheels import make_wheel


def test_a_newer_version_on_the_index_changes_nothing(tmp_path: Path) -> None:
    """A package that is required with an extra made pip look for its newest version, which has no hash in the lock."""
    (locked,) = re.findall(r"^LOCKED := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    index = tmp_path / "index"
    index.mkdir()
    make_wheel(index, "1.0", name="measure")
    make_wheel(index, "1.1", name="measure")
    make_wheel(index, "1.0", "measure[toml]>=1", name="plugin")
    lines = [
        f"{file.name.split('-')[0]}==1.0 --hash=sha256:{_sha256(file)}" for file in sorted(index.glob("*-1.0-*.whl"))
    ]
    (tmp_path / "test.txt").write_text("\n".join(lines))
    installed = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--isolated", "--disable-pip-version-check", "--no-index"),
            *("--find-links", index, "--target", tmp_path / "site"),
            *locked.replace("requirements/", f"{tmp_path}/test.txt").split(),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert installed.returncode == 0, installed.stderr
    assert {folder.name for folder in (tmp_path / "site").glob("*.dist-info")} == {
        "measure-1.0.dist-info",
        "plugin-1.0.dist-info",
    }


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
