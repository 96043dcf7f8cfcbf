"""Many swaps: two models take one memory from each other again and again, and nothing of them is left."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import redis

from faults.checker import check_keys
from faults.processes import Footprint, footprint
from tests.support.fleet import Fleet, Process, execute, fleet
from tests.support.processes import family
from tests.support.redis_types import command

MODELS = ("first", "second")
SETTLED = 6
"""Swaps after which node and store are as they should stay."""

EVERY = 50
"""Swaps between two samples."""

HEAD = "| swaps | seconds | node: MB | node: open files | a worker's processes: MB | members of lasting keys |"
_MORE_FILES, _MORE_MEGABYTES = 4, 16
"""What the node, and the processes of a worker together, may take more in the end."""

_COUNTS = {b"zset": "ZCARD", b"hash": "HLEN", b"set": "SCARD", b"list": "LLEN"}


@dataclass
class Report:
    """What a run has shown: after how many swaps, what the node took, a worker's processes (MB), and the store."""

    node: dict[int, Footprint] = field(default_factory=dict)
    workers: dict[int, float] = field(default_factory=dict)
    members: dict[int, int] = field(default_factory=dict)
    """Members of all keys without a TTL."""
    wrong: list[str] = field(default_factory=list)


def run(folder: Path, *, swaps: int, on_sample: Callable[[str], None] = lambda row: None) -> Report:
    """Make ``swaps`` swaps with the simulated engine, each by a request for the model that is not loaded.

    ``on_sample`` is called with a row below :data:`HEAD` after each :data:`EVERY` swaps.
    """
    report = Report()
    began = time.monotonic()
    with fleet(folder, launch=execute) as service:
        service.api("--queue-timeout", "120")
        node = _node(service)
        for number in range(swaps + 1):  # the first load displaces nothing
            _ask(service, MODELS[number % 2])
            if number == SETTLED or (number > SETTLED and (number % EVERY == 0 or number == swaps)):
                _sample(service, node, number, report)
                on_sample(_row(report, number, time.monotonic() - began))
        _check(report)
        assert node.stop() == 0
        with service.redis() as client:
            report.wrong += check_keys(client)
            report.wrong += (f"key {name.decode()} is left" for name in client.scan_iter("vinoqueue:placements:*"))
    return report


def _row(report: Report, number: int, seconds: float) -> str:
    node = report.node[number]
    values = (number, seconds, node.megabytes, node.files, report.workers[number], report.members[number])
    return "".join(f"| {value:.0f} " for value in values) + "|"


def _node(service: Fleet) -> Process:
    entries = (f'[models.{name}]\nsource = "[[tokens 1]]"\nmemory = "60MB"\n' for name in MODELS)
    file = service.folder / "models.toml"
    file.write_text("".join(entries))
    times = ("--swap-wait", "0", "--swap-drain", "1")
    node = service.start("node", "--models", str(file), "--memory", "100MB", "--engine", "simulated", *times)
    service.until(lambda: json.loads(service.request("GET", "/v1/fleet")[2])["nodes"], "the node to register")
    return node


def _ask(service: Fleet, model: str) -> None:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    status, _, answer = service.request("POST", "/v1/chat/completions", body)
    assert status == 200, answer


def _sample(service: Fleet, node: Process, number: int, report: Report) -> None:
    report.node[number] = footprint(node.popen.pid)
    report.workers[number] = sum(footprint(pid).megabytes for pid in family(node.popen.pid)[1:])
    with service.redis() as client:
        report.members[number] = sum(
            _members(client, name.decode()) for name in client.scan_iter() if client.pttl(name) == -1
        )


def _members(client: "redis.Redis", name: str) -> int:
    count = _COUNTS.get(command(client, "TYPE", name))
    return int(command(client, count, name)) if count else 1


def _check(report: Report) -> None:
    (first, then), (last, now) = min(report.node.items()), max(report.node.items())
    if now.files > then.files + _MORE_FILES:
        report.wrong.append(f"the node had {then.files} open files after {first} swaps and has {now.files}")
    if now.megabytes > then.megabytes + _MORE_MEGABYTES:
        report.wrong.append(f"the node had {then.megabytes:.0f} MB after {first} swaps and has {now.megabytes:.0f} MB")
    if report.workers[last] > report.workers[first] + _MORE_MEGABYTES:
        report.wrong.append(f"the workers had {report.workers[first]:.0f} MB and have {report.workers[last]:.0f} MB")
    # A worker that leaves may still be in the registry.
    if report.members[last] > report.members[first] + (last - first) // 2:
        report.wrong.append(f"the store had {report.members[first]} members of lasting keys: {report.members[last]}")
