"""How much memory a KV cache may take where nobody has said."""

from collections.abc import Iterable
from pathlib import Path

from worker.engine.devices import device_kind

_GB = 2**30
_SHARE = 4
"""One of so many parts of the free memory goes to the cache: the model comes first, and other workers may share the
host. Memory that a cache does not use yet is not taken from the system."""
_LEAST, _MOST = 1, 16
_CONTAINER = Path("/sys/fs/cgroup")


def default_cache_size(device: str) -> int:
    """Return a size for the KV cache in GB, from the memory that is free now; 0 lets the cache grow as needed.

    Only the CPU's cache lies in the memory that is looked at here. For other devices the pipeline's own way is left as
    it is: it grows the cache within what the device has.
    """
    if device_kind(device) != "CPU":
        return 0
    return max(_LEAST, min(free_memory() // (_SHARE * _GB), _MOST))


def free_memory(meminfo: Path = Path("/proc/meminfo"), container: Path = _CONTAINER) -> int:
    """Return the bytes that processes can still take, on the host and in this container; 0 where nothing tells."""
    return min(_free(meminfo, container), default=0)


def _free(meminfo: Path, container: Path) -> Iterable[int]:
    try:
        for line in meminfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                yield int(value.split()[0]) * 1024
    except OSError:
        pass  # not Linux
    try:
        limit, used = ((container / name).read_text().strip() for name in ("memory.max", "memory.current"))
        if limit != "max":
            yield max(0, int(limit) - int(used))
    except OSError:
        pass  # no container, or one of another kind
