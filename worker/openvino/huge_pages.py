"""Moves the weights into huge pages, which makes a step faster: it reads all weights, and the TLB covers only a few
thousand pages. Before that, gives back what only loading has needed.

Most Linux distributions enable huge pages only for programs that request them (``transparent_hugepage`` is
``madvise``), and OpenVINO does not. ``MADV_COLLAPSE`` (Linux 6.1, madvise(2)) converts memory that is already in use.
Memory that is only reserved, such as most of a KV cache, is left alone: converting would allocate it.
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
"""Size in bytes of a huge page on systems with 4 kB pages."""

_MADV_COLLAPSE = 25

_ANONYMOUS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p [0-9a-f]+ \S+ 0 *(?:\[heap\])?$", re.MULTILINE)
"""A private anonymous mapping in /proc/PID/maps."""

_WEIGHTS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r--[ps] [0-9a-f]+ \S+ [1-9]\d* +/.*\.bin$", re.MULTILINE)
"""A mapping, only for reading, of a file of weights, of which the compiled model has copies."""


def compact() -> None:
    """Give back memory that only loading has needed, and move the rest to huge pages."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        with suppress(OSError):
            for mapping in _WEIGHTS.finditer(Path("/proc/self/maps").read_text()):
                start, end = int(mapping[1], 16), int(mapping[2], 16)
                libc.madvise(start, end - start, mmap.MADV_DONTNEED)  # what is read again comes from the page cache
        with suppress(AttributeError):  # of glibc
            libc.malloc_trim(0)
    use_huge_pages()


def use_huge_pages() -> int:
    """Convert this process's memory to huge pages where at least half of one is in use; return the bytes converted.

    Takes 2 ms per MB. Does nothing if the kernel lacks support or does not report which pages are in use.
    """
    if sys.platform != "linux":
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    converted = 0
    with suppress(OSError), Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        for mapping in _ANONYMOUS.finditer(Path("/proc/self/maps").read_text()):
            start, end = int(mapping[1], 16), int(mapping[2], 16)
            for page in range(-(-start // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE):
                if _share_in_use(pagemap, page) >= 0.5 and madvise(page, _HUGE, _MADV_COLLAPSE) == 0:
                    converted += _HUGE
    return converted


def _share_in_use(pagemap: IO[bytes], page: int) -> float:
    """Return the share of present pages in the huge page at an address (bit 63 of /proc/PID/pagemap entries)."""
    pagemap.seek(page // mmap.PAGESIZE * 8)
    entries = numpy.frombuffer(pagemap.read(_HUGE // mmap.PAGESIZE * 8), dtype=numpy.uint64)
    return numpy.count_nonzero(entries >> numpy.uint64(63)) / len(entries)
