"""Attacks that multiply one request: many choices of a large prompt must cost memory for one copy of it."""

import json
from pathlib import Path

import pytest

from tests.support.fleet import Fleet
from tests.support.fleet_fixture import fleet_fixture
from tests.support.redis_types import at_once

CONTENT = 3_900_000
STORE_SPARE, API_SPARE = 40 * 2**20, 80 * 2**20
"""Bytes that store and API may grow by: parsing and sending one copy takes several times its size."""


target = fleet_fixture(scope="function")
"""One API replica and one simulated worker, which nobody else has used."""


def peak_memory(pid: int) -> int:
    """The largest resident size in bytes that the process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not tell the peak of a process's memory")


@pytest.mark.parametrize(
    ("choices", "body", "status"),
    [
        (128, {"messages": [{"role": "user", "content": "a " * (CONTENT // 2)}]}, 413),
        (8, {"messages": [{"role": "user", "content": "a " * (CONTENT // 2)}]}, 400),
        (64, {"messages": [{"role": "user", "content": "a " * 200_000}]}, 400),
    ],
)
def test_choices_of_a_large_prompt(target: Fleet, choices: int, body: dict[str, object], status: int) -> None:
    with target.redis() as store:
        api = target.processes[1].popen.pid
        before = at_once(store.info("memory"))["used_memory_peak"], peak_memory(api)
        text = json.dumps({"model": "sim", "n": choices, "max_tokens": 1, **body})
        got, _, answer = target.request("POST", "/v1/chat/completions", text)
        assert got == status, answer[:300]
        error = json.loads(answer)["error"]
        if status == 413:
            assert (error["param"], error["code"]) == ("n", "request_too_large")
        else:
            assert error["code"] == "context_length_exceeded"
        after = at_once(store.info("memory"))["used_memory_peak"], peak_memory(api)
        assert after[0] - before[0] < STORE_SPARE
        assert after[1] - before[1] < API_SPARE
        target.until(lambda: not at_once(store.keys("arq:job:*")), "nothing to be left of the request")
