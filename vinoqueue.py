"""The command ``vinoqueue``: runs :mod:`cli.main`, if Python finds the packages of this installation."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("api", "cli", "shared", "worker")
"""Other projects have packages of these names."""

_FOREIGN = ("PYTHONPATH", "PYTHONHOME")
"""Variables for other programs. That of Intel's setupvars.sh, for example, has another OpenVINO."""


def main() -> None:
    """Run the command; start again without variables that would have Python import something else."""
    foreign = [name for name in _FOREIGN if os.environ.pop(name, "")]
    if foreign:
        os.execv(sys.executable, [sys.executable, "-P", "-m", "vinoqueue", *sys.argv[1:]])  # noqa: S606
    for name in _PACKAGES:
        if (found := _foreign(name)) is not None:
            sys.exit(
                f"Error: Python finds a package '{name}' of another project in {found}. Install Vinoqueue in a virtual "
                "environment of its own, with nothing else in it (in a checkout: make clean install)."
            )
    from cli.main import main as run

    run(prog_name="vinoqueue")


def _foreign(name: str) -> str | None:
    """Return where the package ``name`` is found if that is not this installation's."""
    found = find_spec(name)
    origin = Path(found.origin or "") if found else Path()
    # Another project's package in the same folder has replaced ours.
    ours = origin.parent.parent == Path(__file__).parent and "Vinoqueue" in origin.read_text(errors="replace")
    return None if ours else str(origin.parent)


if __name__ == "__main__":
    main()
