"""Default size of the KV cache, and of a batch."""

from collections.abc import Iterable
from pathlib import Path

from worker.model.devices import device_kind

_GB = 2**30
_SHARE = 4
"""The cache gets 1/4 of the free memory: the model needs memory first, and other workers may share the host. Memory
that the cache does not use yet is not allocated."""
_LEAST, _MOST = 1, 16
_SEQUENCE = 512
"""Tokens of prompt and output that each sequence of a full batch has room for. If sequences grow longer, the pipeline
preempts some of them and recomputes them later."""
_MIN_BATCH, _MAX_BATCH, _MAX_GPU_BATCH = 4, 32, 64
"""Beyond 32 sequences, a CPU gains little throughput for a higher latency per token (docs/deployment.md). A GPU has
more compute units to fill."""
_CONTAINER = Path("/sys/fs/cgroup")
_LIMIT_AND_USE = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Files of cgroup v2, and of v1, whose limit is never "max" but greater than any memory."""


def default_cache_size(device: str) -> int:
    """Return the default KV cache size in GB from the free memory; 0 lets the cache grow as needed.

    Only a CPU's cache is in host memory. On other devices, the pipeline grows the cache within the device's memory.
    """
    if device_kind(device) != "CPU":
        return 0
    return max(_LEAST, min(free_memory() // (_SHARE * _GB), _MOST))


def max_sequences(device: str) -> int:
    """Return the maximum batch size on ``device``."""
    return _MAX_GPU_BATCH if device_kind(device) == "GPU" else _MAX_BATCH


def fitting_sequences(device: str, cache_tokens: int) -> int:
    """Return the batch size for a KV cache of ``cache_tokens`` tokens, within the limits of ``device``."""
    return max(_MIN_BATCH, min(cache_tokens // _SEQUENCE, max_sequences(device)))


def free_memory(meminfo: Path = Path("/proc/meminfo"), container: Path = _CONTAINER) -> int:
    """Return the available memory in bytes, on the host and in this container; 0 if unknown."""
    return min(_free(meminfo, container), default=0)


def _free(meminfo: Path, container: Path) -> Iterable[int]:
    try:
        for line in meminfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                yield int(value.split()[0]) * 1024
    except OSError:
        pass  # not Linux
    for names in _LIMIT_AND_USE:
        try:
            limit, used = ((container / name).read_text().strip() for name in names)
        except OSError:
            continue  # no container, or one of the other version
        if limit != "max":
            yield max(0, int(limit) - int(used))
