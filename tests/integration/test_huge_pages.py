"""Huge pages for what is in memory."""

import mmap
import sys
from pathlib import Path

import pytest

from worker.openvino.huge_pages import compact, use_huge_pages

MEGABYTE = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has MADV_COLLAPSE")
def test_memory_stays_as_it_is() -> None:
    with mmap.mmap(-1, 16 * MEGABYTE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = bytes(range(256)) * (len(memory) // 256)
        put = use_huge_pages()
        assert memory[:] == bytes(range(256)) * (len(memory) // 256)
        # A kernel before 6.1 puts none; one that does finds no less than this.
        assert put == 0 or put >= 12 * MEGABYTE


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_weights_in_a_mapped_file_take_no_memory_until_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(bytes(range(256)) * (MEGABYTE // 64))
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as weights:
        assert weights[:] == file.read_bytes()
        assert _resident(file) == 4 * MEGABYTE
        compact()
        assert _resident(file) == 0
        assert weights[:] == file.read_bytes()


def _resident(file: Path) -> int:
    """Return how many bytes of the mapping of ``file`` are in this process's memory."""
    _, _, after = Path("/proc/self/smaps").read_text().partition(str(file))
    return int(after.partition("\nRss:")[2].split()[0]) * 1024
