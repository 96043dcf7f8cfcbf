"""How long the fuzzers run: briefly among the tests, longer in `make faults`."""

import os

FACTOR = "FUZZ_FACTOR"
"""Environment variable: by how much to multiply the number of cases of each fuzzer."""


def cases(usual: int) -> int:
    """Return how many cases to try where ``usual`` is the number for `make test`."""
    return usual * int(os.environ.get(FACTOR, "1"))
