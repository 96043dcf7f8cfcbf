"""Says whether the virtual environment whose Python runs this is usable: ``python environment.py [PYTHON]``.

Exits with 0 if it was made in this folder, by the Python that it finds now, and by ``PYTHON`` if that is given.
"""

import os
import subprocess
import sys
from pathlib import Path

_WHERE = "import os, sys; print(os.path.realpath(sys.executable))"


def main(chosen: list[str]) -> int:
    """Return the exit code. Raises :class:`KeyError` and :class:`OSError` for what is no virtual environment."""
    made = dict(line.split(" = ", 1) for line in Path(sys.prefix, "pyvenv.cfg").read_text().splitlines())
    folder = made["command"].endswith(f" {sys.prefix}")
    python = made["version"].startswith("{}.{}.".format(*sys.version_info))
    for other in chosen:
        found = subprocess.run([other, "-c", _WHERE], capture_output=True, text=True, check=False).stdout
        python = python and found.strip() == os.path.realpath(made["executable"])
    return 0 if folder and python else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
