"""Writes docs/fault-tolerance.md: a run of the fault scenarios replaces its own rows."""

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from faults.runner import AFFECTED, Result

_HEAD = """# Fault tolerance

`make faults` writes this page, and `make faults ARGS=vectors` the row of one scenario; the last column has its
commit. Last: `{command}` on {machine}, perhaps kept busy by tests.

Each scenario starts a store, workers and API replicas as real processes, sends chat completions from closed-loop
clients, injects faults, and checks these invariants on every event that a client received:

- Every accepted request has exactly one terminal event, and no event follows it.
- Every text equals the text of the same request without faults: no token is lost, repeated or changed. Sampled texts
  are never joined from two attempts.
- Vectors equal those without faults, and no key of the store holds one.
- A refusal says when to retry, and a client that does is served.
- No attempt publishes after a later one has started.
- At rest, every slot is free, and the store holds only the registry and keys that expire.
- Each batch request has exactly one result. The usage that the service has counted is the sum of what it has reported.
- No process is left over, and none has grown by more than its connection pool and 100 MB.

The simulated engine generates unless a scenario says otherwise. *Requests* are accepted requests, *left* those whose
clients disconnected, *errors* those that ended with an error or a broken connection, and *refused* the responses with
429 and 503. *Recovery* is how long the affected streams were silent (those that were silent for more than
{affected} s within 5 s of one).
"""

_TAIL = """
## Longer runs

`make faults ARGS='soak-7 --seed 7 --soak-seconds 1200'` soaks for 20 minutes; `--soaks 50` adds 50 soaks to the
scenarios. A seed repeats the same requests and faults, but not to the microsecond.

## Limits

- A hung engine is detected after ten times its longest step of the last ten minutes, but not before 3 s; before its
  first steps, and during longer prompts than any of these, after `--step-timeout` (15 s).
- A worker that disappears is detected when its lease expires, 2 s after the last renewal.
- While the store is at its memory limit, new requests get 503 and accepted ones continue.
- Replication is asynchronous. What a killed master had not sent to its replica is lost; the affected requests end with
  an error, unless the next attempt generates the tokens again that its client has (greedy, `--precision exact`).
- Clients of a killed API replica lose their connections. Responses with `store: true` go on, and can be read from any
  other replica.
"""

_COLUMNS = (
    "scenario", "what happens", "requests", "completed", "left", "errors", "refused", "recovery: median, worst (s)",
    "at rest after (s)", "broken invariants", "run",
)  # fmt: skip
_RULE = (*["---"] * 2, *["--:"] * (len(_COLUMNS) - 3), "---")


def write_report(path: Path, rows: Iterable[Sequence[object]], command: str, *, whole: bool) -> None:
    """Write ``rows`` to the page at ``path``, in place of those with their names, or of all in a ``whole`` run.

    A row has what is in :data:`_COLUMNS` but the last; ``command`` is how to get them again.
    """
    before = [] if whole else [line for line in path.read_text().splitlines() if line.startswith("| ")]
    revision = subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], text=True).strip()
    lines = [*before, _line(_COLUMNS), _line(_RULE), *(_line((*row, revision)) for row in rows)]
    head = _HEAD.format(command=command, machine=_machine(), affected=AFFECTED)
    path.write_text("\n".join((head, *{line.split(" | ")[0]: line for line in lines}.values(), _TAIL)))


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def outcome(result: Result) -> Sequence[object]:
    """Return the row of a scenario."""
    recovery = "none" if result.recovery is None else "{:.2f}, {:.2f}".format(*result.recovery)
    return (
        result.scenario.name, result.scenario.what, result.requests, result.completed, result.aborted, result.errors,
        result.refused, recovery, f"{result.settled:.2f}", len(result.wrong),
    )  # fmt: skip


def _machine() -> str:
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(": ")[2]
            break
    return f"{os.cpu_count()} cores ({cpu}), Python {platform.python_version()}, {platform.system()}"
