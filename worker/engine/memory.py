"""How much memory a KV cache may take, and how many sequences a batch, where nobody has said."""

from collections.abc import Iterable
from pathlib import Path

from worker.engine.devices import device_kind

_GB = 2**30
_SHARE = 4
"""One of so many parts of the free memory goes to the cache: the model comes first, and other workers may share the
host. Memory that a cache does not use yet is not taken from the system."""
_LEAST, _MOST = 1, 16
_SEQUENCE = 512
"""Tokens of prompt and answer that a sequence of a full batch should have room for. Where sequences grow longer, the
pipeline preempts some of them and computes them again later."""
_LEAST_BATCH, _MOST_BATCH, _MOST_GPU_BATCH = 4, 32, 64
"""On two cores, a load of 32 streams made 0.86 of the plain engine's tokens in batches of 16 and 1.12 in one of 32;
beyond 32, little is gained for longer gaps between tokens (docs/performance.md). A GPU has more units to fill."""
_CONTAINER = Path("/sys/fs/cgroup")


def default_cache_size(device: str) -> int:
    """Return a size for the KV cache in GB, from the memory that is free now; 0 lets the cache grow as needed.

    Only the CPU's cache lies in the memory that is looked at here. For other devices the pipeline's own way is left as
    it is: it grows the cache within what the device has.
    """
    if device_kind(device) != "CPU":
        return 0
    return max(_LEAST, min(free_memory() // (_SHARE * _GB), _MOST))


def most_sequences(device: str) -> int:
    """Return how many sequences a batch on ``device`` may have at most."""
    return _MOST_GPU_BATCH if device_kind(device) == "GPU" else _MOST_BATCH


def fitting_sequences(device: str, cache_tokens: int) -> int:
    """Return how many sequences of the usual length a KV cache of ``cache_tokens`` holds, within reason."""
    return max(_LEAST_BATCH, min(cache_tokens // _SEQUENCE, most_sequences(device)))


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
