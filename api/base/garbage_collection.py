"""Garbage collector settings for a process with thousands of open streams."""

import gc

_YOUNG = 10_000
"""Threshold of the youngest generation in objects: about sixty new streams, or 2 ms of work."""

_MIDDLE = 5
_OLD = 20
"""Collections of a generation per collection of the next one."""


def collect_rarely() -> None:
    """Collect old objects rarely, and exclude the existing ones.

    A full collection with 5,000 streams pauses the replica for 200 ms, and Python's default thresholds trigger one
    whenever the number of objects has grown by a quarter. It would free little: a request leaves some ten small objects
    in cycles, which young collections find, and reference counting frees the rest.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
