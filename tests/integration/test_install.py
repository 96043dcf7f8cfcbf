"""The Makefile's virtual environment: where it is made again, what pip is told, and Ctrl-C."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.wheels import make_wheel


def interruptible() -> None:
    """Undo what a shell does to commands that it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_while_installing_ends_without_a_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        command = [sys.executable, str(ROOT / "requirements" / "install.py"), "what is needed"]
        index = ["--index-url", f"http://127.0.0.1:{port}/", "--ignore-installed", "anything"]
        with subprocess.Popen(
            [*command, *index],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=interruptible,
        ) as process:
            connection, _ = silent.accept()  # pip asks the index
            with connection:
                os.killpg(process.pid, signal.SIGINT)
                output, _ = process.communicate()
    assert process.returncode == 130
    assert output.endswith("Stopped. Nothing is lost: 'make' goes on from here.\n")
    assert "Traceback" not in output


def make(folder: Path, *arguments: str) -> str:
    """Run make for the virtual environment; return what it prints."""
    command = ["make", "--no-print-directory", "-C", str(folder), ".venv/.made", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What makes the environment, and an environment made by a Python whose path has a space."""
    folder = tmp_path_factory.mktemp("install") / "check out"
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    shutil.copy(ROOT / "Makefile", folder)
    spaced = folder / "a python"
    spaced.symlink_to(Path(sys.base_prefix) / "bin" / "python{}.{}".format(*sys.version_info))
    assert "Making a virtual environment" in make(folder, f"PYTHON={spaced}")
    assert make(folder, f"PYTHON={spaced}") == ""
    return folder


def test_the_settings_of_pip_do_not_lead_elsewhere(checkout: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path, "1.0", name="measure")
    (tmp_path / "pip.conf").write_text(f"[global]\nfind-links = {tmp_path}\nno-index = true\n[install]\nuser = true\n")
    (tmp_path / "api").mkdir()
    (tmp_path / "json.py").write_text("raise SystemExit('a module of PYTHONPATH')")
    hostile = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PYTHONPATH": str(tmp_path), "PIP_REQUIRE_HASHES": "1"}
    elsewhere = {f"PIP_{name}": str(tmp_path / name) for name in ("TARGET", "PREFIX", "ROOT")}
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    rule = "\ninstall-measure: .venv/.made\n\t@$(INSTALL) measure measure\n"
    (checkout / "Makefile").write_text((ROOT / "Makefile").read_text() + rule)
    done = subprocess.run(
        ["make", "-C", str(checkout), "install-measure"],
        env={**own, **hostile, **elsewhere},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(checkout.glob(".venv/lib/python*/site-packages/measure-1.0.dist-info"))) == 1
    assert not any((tmp_path / name).exists() for name in ("TARGET", "PREFIX", "ROOT"))


def test_the_environment_is_made_again_elsewhere_and_for_another_python(checkout: Path) -> None:
    assert make(checkout) == "", "another Python comes first by now, and was not asked for"
    configuration = checkout / ".venv" / "pyvenv.cfg"
    older = configuration.read_text().replace("version = 3.", "version = 2.")
    usable = [checkout / ".venv" / "bin" / "python", checkout / "requirements" / "environment.py"]
    assert subprocess.run(usable, check=False).returncode == 0
    original = configuration.read_text()
    configuration.write_text(older)
    assert subprocess.run(usable, check=False).returncode == 1, "the system has another Python since"
    configuration.write_text(original)
    copy = checkout.with_name("copy")
    shutil.copytree(checkout, copy, symlinks=True)
    assert "Making a virtual environment" in make(copy)
    assert make(checkout) == ""
