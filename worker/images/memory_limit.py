"""Limits the memory that a block of code may allocate."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Let this process allocate at most ``size`` more bytes within the block; further allocations fail.

    Reserved memory counts even if it is never used. Has no effect on other systems than Linux.
    """
    if sys.platform != "linux":
        yield
        return
    import resource  # not available on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [_allocated() + size, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _allocated() -> int:
    """Return the bytes of this process's private writable memory."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
