"""Weights in huge pages, which a step reads faster: it goes through all of them, and a processor knows the places of a
few thousand pages by heart.

Most Linux distributions leave it to a program to ask for huge pages (``transparent_hugepage`` is ``madvise``), and
OpenVINO does not. ``MADV_COLLAPSE`` (Linux 6.1, madvise(2)) makes them of memory that is in use already. What is only
reserved, as most of a KV cache is, stays as it is, or it would take memory before its time.
"""

import ctypes
import mmap
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy

_HUGE = 2 << 20
"""Bytes of a huge page where the others have 4 kB."""

_MADV_COLLAPSE = 25

_ANONYMOUS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p [0-9a-f]+ \S+ 0 *(?:\[heap\])?$", re.MULTILINE)
"""A private mapping in /proc/PID/maps that is no file's."""


def use_huge_pages() -> int:
    """Put what this process has in memory into huge pages, where half of one or more is in use; return the bytes put.

    Takes 2 ms a MB, once. Does nothing where the kernel can't, or does not tell what is in use.
    """
    if sys.platform != "linux":
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    put = 0
    with suppress(OSError), Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        for mapping in _ANONYMOUS.finditer(Path("/proc/self/maps").read_text()):
            start, end = int(mapping[1], 16), int(mapping[2], 16)
            for page in range(-(-start // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE):
                if _share_in_use(pagemap, page) >= 0.5 and madvise(page, _HUGE, _MADV_COLLAPSE) == 0:
                    put += _HUGE
    return put


def _share_in_use(pagemap: IO[bytes], page: int) -> float:
    """How much of the huge page at an address has memory: bit 63 of each entry of /proc/PID/pagemap says it."""
    pagemap.seek(page // mmap.PAGESIZE * 8)
    entries = numpy.frombuffer(pagemap.read(_HUGE // mmap.PAGESIZE * 8), dtype=numpy.uint64)
    return numpy.count_nonzero(entries >> numpy.uint64(63)) / len(entries)
