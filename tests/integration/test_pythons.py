"""A start and a chat with the default model on every supported Python of this machine, such as that of Debian.

With Debian's package ``locales``, in the Turkish locale.
"""

import os
import shutil
import signal
import site
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from shared.runtime.processes import die_with_parent
from tests.support.eventually import PATIENCE, wait_until
from tests.support.fleet import free_port
from tests.support.paths import ROOT

_DESCRIBE = "import sys, venv; print('%d.%d.%d' % sys.version_info[:3]); print(sys.prefix == sys.base_prefix)"


def pythons() -> dict[str, Path]:
    """The interpreters on the PATH and those of pyenv by version: new enough, and others than the one of the tests."""
    folders = [*map(Path, os.get_exec_path()), *Path("~/.pyenv/versions").expanduser().glob("*/bin")]
    found: dict[str, Path] = {}
    for file in (file for folder in folders for file in folder.glob("python3*")):
        if file.name.removeprefix("python3").replace(".", "").isdecimal() or file.name == "python3":
            done = subprocess.run([file, "-I", "-c", _DESCRIBE], capture_output=True, text=True, check=False)
            version, _, original = done.stdout.strip().partition("\n")
            if original == "True" and (3, 11) <= tuple(map(int, version.split("."))) < (3, 15):
                found.setdefault(version, file)
    found.pop("{}.{}.{}".format(*sys.version_info), None)
    return dict(sorted(found.items()))


PYTHONS = pythons()
ALIKE = {version: file for version, file in PYTHONS.items() if version.startswith("{}.{}.".format(*sys.version_info))}
"""Other releases of the Python of the tests, which can use its packages."""


def turkish(folder: Path) -> dict[str, str]:
    """Return variables that choose the Turkish locale, for which ``I`` is no large ``i``, made in ``folder``."""
    if not Path("/usr/share/i18n/locales/tr_TR").exists():
        return {}
    options = ("--inputfile=tr_TR", "--charmap=UTF-8", "--no-archive")
    subprocess.run(["localedef", *options, folder / "tr_TR.UTF-8"], check=True)
    return {"LC_ALL": "tr_TR.UTF-8", "LOCPATH": str(folder)}


@cache
def needed() -> list[str]:
    """The locked requirements of a service with the default model, each in a line with its hashes."""
    files = [(ROOT / "requirements" / f"{name}.txt").read_text() for name in ("up", "model")]
    return [line for text in files for line in text.replace("\\\n", " ").splitlines()]


def found_here(requirement: str) -> bool:
    try:
        return bool(metadata.distribution(requirement.partition("==")[0]))
    except metadata.PackageNotFoundError:
        return False


def environment(python: Path, folder: Path) -> str:
    """Make a virtual environment with this checkout and the locked requirements; return its Python.

    It finds the packages of the tests, which are compiled, if it can use them.
    """
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    alike = python in ALIKE.values()
    (packages / "found.pth").write_text("\n".join([str(ROOT), *(site.getsitepackages() if alike else ())]))
    missing = folder / "missing.txt"
    missing.write_text("\n".join(line for line in needed() if not (alike and found_here(line))))
    uv = shutil.which("uv", path=Path(sys.executable).parent)
    assert uv
    options = ("--quiet", "--no-deps", "--require-hashes", "--requirement", missing)
    subprocess.run([uv, "pip", "install", "--python", folder / "bin" / "python", *options], check=True)
    return str(folder / "bin" / "python")


@pytest.mark.parametrize("python", [pytest.param(file, id=version) for version, file in PYTHONS.items()])
def test_it_starts_and_answers_in_turkish_too(python: Path, tmp_path: Path, runtime: Path) -> None:
    command = [environment(python, tmp_path / "venv"), "-P", "-m", "cli.main"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("VINOQUEUE_", "PYTHON"))}
    clean |= {"TMPDIR": str(runtime), **turkish(tmp_path)}
    if python not in ALIKE.values():
        clean["PYTHONPYCACHEPREFIX"] = str(tmp_path / "compiled")
    port, log = free_port(), tmp_path / "log"
    with log.open("wb") as output:
        up = subprocess.Popen(
            [*command, "up", "--port", str(port)], env=clean, cwd=tmp_path, stdout=output, stderr=output,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        wait_until(
            lambda: "Vinoqueue serves" in log.read_text() or up.poll() is not None, "the service", details=log.read_text
        )
        assert up.poll() is None, log.read_text()
        chat = [*command, "chat", "--url", f"http://127.0.0.1:{port}"]
        chat += ["--temperature", "0", "Name the capital of France."]
        said = subprocess.run(chat, env=clean, capture_output=True, text=True, check=True, timeout=PATIENCE)
        assert "Paris" in said.stdout
        up.send_signal(signal.SIGTERM)
        assert up.wait(PATIENCE) == 0
        assert "Traceback" not in log.read_text()
    finally:
        up.kill()
        up.wait()


@pytest.mark.parametrize("python", [pytest.param(file, id=version) for version, file in ALIKE.items()])
def test_tasks_end_alike_in_every_release(python: Path, tmp_path: Path) -> None:
    """Releases differ in asyncio, and in what the standard library says about addresses."""
    tests = (
        "tests/unit/shared/runtime",
        "tests/unit/api/batches/test_run.py",
        "tests/unit/api/media/test_addresses.py",
    )
    done = subprocess.run(
        [environment(python, tmp_path / "venv"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
