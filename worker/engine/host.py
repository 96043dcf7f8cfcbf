"""What this process may use of its host within its control groups (cgroups) and affinity: memory, and CPU time."""

import math
from collections.abc import Iterable, Set
from pathlib import Path

from shared.runtime.placement import own_cpus

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")
_TOPOLOGY = Path("/sys/devices/system/cpu")

_MEMORY = ((".", "memory.max", "memory.current"), ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Folders and files of cgroup v2, and of v1, whose limit is never "max" but greater than any memory."""

_NO_LIMIT = 2**60
"""Bytes of cgroup v1's limit where there is none."""

_QUOTA = (
    (".", "cpu.max"),
    ("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    ("cpu,cpuacct", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
)
"""The same: v2 has quota and period in one file, and v1 the quota -1 if there is none."""


def free_memory(meminfo: Path = _MEMINFO, groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Return the available memory in bytes, on the host and in the control groups that this process is in, such as
    those of a container or a service; 0 if unknown.

    ``groups`` is the folder of all groups, ``own`` the file that names this process's.
    """
    limits = (max(0, int(limit) - int(used)) for limit, used in _values(_MEMORY, "memory", groups, own))
    return min((*_available(meminfo), *limits), default=0)


def memory_limit(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Return how many bytes control groups allow this process; 0 without a limit. The arguments are those of
    :func:`free_memory`."""
    limits = (int(limit) for limit, _ in _values(_MEMORY, "memory", groups, own))
    return min((limit for limit in limits if limit < _NO_LIMIT), default=0)


def cpu_quota(groups: Path = _GROUPS, own: Path = _OWN) -> float:
    """Return the CPU time that control groups allow this process, in seconds per second; infinity without a quota.

    The arguments are those of :func:`free_memory`.
    """
    quotas = (int(quota) / int(period) for quota, period in _values(_QUOTA, "cpu", groups, own) if int(quota) > 0)
    return min(quotas, default=math.inf)


def usable_cpus() -> float:
    """Return how many CPUs this process may use at the same time; infinity if unknown."""
    return min(len(own_cpus()) or math.inf, cpu_quota())


def cores(cpus: Set[int], topology: Path = _TOPOLOGY) -> int:
    """Return the number of physical cores that ``cpus`` belong to."""
    return len({_siblings(topology / f"cpu{cpu}" / "topology" / "thread_siblings_list") or cpu for cpu in cpus})


def _siblings(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _available(meminfo: Path) -> Iterable[int]:
    try:
        for line in meminfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                yield int(value.split()[0]) * 1024
    except OSError:
        pass  # not Linux


def _values(forms: Iterable[tuple[str, ...]], controller: str, groups: Path, own: Path) -> Iterable[list[str]]:
    """Yield the two values of each control group that limits this process, in any of ``forms``."""
    for place in _places(own, controller):
        for folder, *names in forms:
            try:
                values = " ".join((groups / folder / place / name).read_text() for name in names).split()
            except OSError:
                continue  # no limit here, or a group of the other version
            if values[0] != "max":
                yield values


def _places(own: Path, controller: str) -> set[Path]:
    """Return the paths of the control groups that may limit this process. A container sees its own as the root."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        lines = []
    paths = [Path(path.lstrip("/")) for _, names, path in lines if not names or controller in names.split(",")]
    return {Path(), *paths, *(outer for path in paths for outer in path.parents)}
