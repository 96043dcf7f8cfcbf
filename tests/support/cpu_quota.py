"""A control group with a CPU quota."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PERIOD = 100_000
_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""Of cgroup v1, and of v2."""


@contextmanager
def cpu_quota(cpus: float) -> Iterator[None]:
    """Start processes under a quota: those that this one starts inside the block, until all of them have ended.

    Skips the test where this process may not make control groups.
    """
    group = next(root for root in _ROOTS if root.is_dir()) / f"vinoqueue-test-{os.getpid()}"
    before = _own(group.parent)
    try:
        group.mkdir()
        quota = str(int(cpus * _PERIOD))
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_quota_us").write_text(quota)
        else:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"needs the right to make control groups with a CPU quota: {error}")
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (before / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        group.rmdir()


def _own(root: Path) -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if "cpu" in names.split(",") or (not names and root.name == "cgroup"):
            return root / path.lstrip("/")
    return root
