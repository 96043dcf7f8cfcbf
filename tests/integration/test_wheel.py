"""The wheel and the sdist: built offline, complete, and enough to serve where their dependencies are installed."""

import json
import os
import signal
import site
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from shared.runtime.processes import die_with_parent
from tests.support.eventually import PATIENCE, wait_until
from tests.support.fleet import SIMULATED, free_port
from tests.support.paths import ROOT
from tools.distribution import PACKAGES, build


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    return build(tmp_path_factory.mktemp("dist"))


def environment(folder: Path, archive: Path) -> Path:
    """Install ``archive`` into a new environment that finds the packages of this one, but not its editable project."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    # Files *.pth in a folder that a .pth file names are not read.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    install = ("install", "--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall", str(archive))
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True, capture_output=True)
    return folder / "bin" / "vinoqueue"


def test_all_files_are_packed(built: tuple[Path, Path]) -> None:
    files = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    wheel, sdist = built
    with zipfile.ZipFile(wheel) as content:
        assert files - set(content.namelist()) == set()
    with tarfile.open(sdist) as archive:
        assert files - {name.partition("/")[2] for name in archive.getnames()} == set()


def test_the_sdist_makes_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tmp_path))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(built[1])], check=True, capture_output=True)
    (made,) = tmp_path.glob("*.whl")
    assert made.name == built[0].name
    with zipfile.ZipFile(made) as one, zipfile.ZipFile(built[0]) as other:
        contents = [{file.filename: file.CRC for file in archive.infolist()} for archive in (one, other)]
    assert contents[0] == contents[1]


def test_an_installed_wheel_serves_a_chat(built: tuple[Path, Path], tmp_path: Path, runtime: Path) -> None:
    command = environment(tmp_path / "venv", built[0])
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("VINOQUEUE_", "PYTHON"))}
    clean |= {"TMPDIR": str(runtime), "XDG_RUNTIME_DIR": ""}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [command, *arguments], env=clean, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert "--redis-url" in run("up", "--help")
    port, log = free_port(), tmp_path / "log"
    with log.open("wb") as output:
        up = subprocess.Popen(
            [command, "up", "--port", str(port), *SIMULATED],
            env=clean, cwd=tmp_path, stdout=output, stderr=output, preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        wait_until(lambda: "Vinoqueue serves sim" in log.read_text(), "the service", details=log.read_text)
        address = f"http://127.0.0.1:{port}"
        assert run("chat", "--url", address, "[[say hello there]]") == "hello there\n"
        with urllib.request.urlopen(f"{address}/", timeout=PATIENCE) as page:
            assert b"page.js" in page.read()
        status = json.loads(run("status", "--json"))
        assert [worker["model"] for worker in status["workers"]] == ["sim"]
        up.send_signal(signal.SIGTERM)
        assert up.wait(PATIENCE) == 0
    finally:
        up.kill()
        up.wait()
