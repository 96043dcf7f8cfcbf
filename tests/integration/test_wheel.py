"""The wheel: built offline, complete, and enough to serve in an environment that has its dependencies only."""

import json
import os
import signal
import site
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

from shared.runtime.processes import die_with_parent
from tests.support.eventually import PATIENCE, wait_until
from tests.support.fleet import SIMULATED, free_port
from tests.support.images import wheel
from tests.support.paths import ROOT

PACKAGES = ("api", "cli", "shared", "worker")


def environment(folder: Path, built: Path) -> Path:
    """Install the wheel into a new environment that finds the packages of this one, but not its editable project."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = ("install", "--no-deps", "--no-index", str(built))
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Files *.pth in a folder that a .pth file names are not read.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "vinoqueue"


def test_the_wheel_serves_a_chat(tmp_path: Path, runtime: Path) -> None:
    built = wheel(tmp_path, [*PACKAGES, "vinoqueue.py", "pyproject.toml", "README.md", "LICENSE"])
    with zipfile.ZipFile(built) as content:
        packed = set(content.namelist())
    files = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert files - packed == set()
    command = environment(tmp_path / "venv", built)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("VINOQUEUE_", "PYTHON"))}
    clean |= {"TMPDIR": str(runtime), "XDG_RUNTIME_DIR": ""}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [command, *arguments], env=clean, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert "OpenAI-compatible" in run("--help")
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
