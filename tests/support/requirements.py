"""Reads the locked requirements."""

from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.paths import ROOT


@cache
def pins(file: str) -> dict[str, Version]:
    """Return the version of each package in a requirements file that this environment needs."""
    found: dict[str, Version] = {}
    for line in (ROOT / "requirements" / f"{file}.txt").read_text().replace("\\\n", " ").splitlines():
        requirement = Requirement(line.split(" --hash")[0])
        if requirement.marker is None or requirement.marker.evaluate():
            (pinned,) = requirement.specifier
            assert pinned.operator == "==", line
            found[canonicalize_name(requirement.name)] = Version(pinned.version)
    return found
