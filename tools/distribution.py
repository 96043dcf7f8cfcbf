"""Builds the distribution: ``python -m tools.distribution FOLDER`` writes the wheel and the sdist into FOLDER.

They are built from a copy, because setuptools writes into the folder that it builds. Nothing is downloaded.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = ("api", "cli", "shared", "worker")

_FILES = ("vinoqueue.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
_HOOKS = ("build_wheel", "build_sdist")
"""Of setuptools, as PEP 517 names them."""


def build(folder: Path) -> tuple[Path, Path]:
    """Build into ``folder``; return the wheel and the sdist. Raises :class:`subprocess.CalledProcessError`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vinoqueue-build-") as scratch:
        source = Path(scratch)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
        for file in _FILES:
            shutil.copy(ROOT / file, source)
        (source / "MANIFEST.in").write_text("".join(f"graft {package}\n" for package in PACKAGES))
        wheel, sdist = (_run(hook, source, folder) for hook in _HOOKS)
    return wheel, sdist


def _run(hook: str, source: Path, folder: Path) -> Path:
    """Run ``hook`` in a process of its own; return the file that it has made in ``folder``."""
    code = f"import sys; from setuptools.build_meta import {hook}; print(); print({hook}(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(folder.resolve())]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return folder / done.stdout.splitlines()[-1]


if __name__ == "__main__":
    for archive in build(Path(sys.argv[1])):
        print(archive)
