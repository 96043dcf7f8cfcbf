"""Writes docs/fault-tolerance.md from the results of a run of the fault scenarios."""

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import quantiles

from faults.runner import AFFECTED, Result

_HEAD = """# Fault tolerance

Written by `{command}` on {machine}. Do not edit: run the command again.

Each scenario starts a store, workers and API replicas as real processes, sends chat completions from closed-loop
clients, and injects faults. Clients record every event that they receive, with its time. Then these invariants are
checked:

- Every accepted request has exactly one terminal event, and no event follows it.
- Every text equals the text of the same request without faults: no token is lost, repeated or changed.
- Sampled texts have no such text to equal, but each of their tokens depends on all before it: no text is joined from
  two attempts that did not know each other's tokens.
- A refusal says when to retry, and a client that does is served.
- On the channels of the API replicas, no attempt publishes after a later one has started, and none after the terminal
  event.
- At rest, every slot and every engine is free, and the store holds only the registry and keys that expire.
- Each batch request has exactly one result, with the text that the other lines with its prompt have.
- The usage that the service has counted is the sum of what it has reported to clients: requests, prompt and completion
  tokens. Requests without a whole answer may have used up to what they asked for.
- No process is left over, and none has grown by more than its connection pool and 100 MB.

The simulated engine generates unless a scenario says otherwise. *Requests* are accepted requests, *left* those whose
clients disconnected, *errors* those that ended with an error or a broken connection, and *refused* the responses with
429 and 503. *Recovery* is how long the affected streams were silent (those that were silent for more than
{affected} s within 5 s of one).

"""

_TAIL = """
## Longer runs

`make faults ARGS='soak-7 --seed 7 --soak-seconds 1200'` soaks for 20 minutes; `make faults ARGS='--seed 1 --soaks 50'`
adds 50 soaks to the scenarios. A seed repeats the same requests and faults, but not to the microsecond.
`make test` runs the short scenarios, with fewer requests.

`make faults ARGS=swaps` has two models take the memory of one from each other 1,000 times, and prints what the node,
the workers and the store hold meanwhile ([catalogue.md](catalogue.md#measurements)).

## Limits

- A hung engine is detected after ten times its longest step of the last ten minutes, but not before 3 s. Until it has
  made steps, and while it reads a prompt that is longer than all in those minutes, the limit is `--step-timeout` (15 s
  by default), because such a step may take seconds. Time in which the worker itself did not run, or the engine waited
  for a CPU, does not count.
- A worker that disappears without notice is detected when its lease expires, 2 s after the last renewal: replicas look
  for expired leases three times per lease, and at the exact end of each lease that has not been renewed.
- While the store is at its memory limit, new requests get 503 and accepted ones continue. Their journals exceed the
  limit meanwhile, so leave the host some memory above it.
- Replication is asynchronous. What a killed master had not sent to its replica is lost; the affected requests end with
  an error. A request whose tokens were lost after its client had them continues only if the next attempt generates
  the same tokens again, as greedy requests to workers with `--precision exact` do.
- Clients of a killed API replica lose their connections and have to send their requests again. Responses with
  `store: true` go on, and can be read from any other replica, like background responses.
"""

_COLUMNS = (
    "scenario", "what happens", "requests", "completed", "left", "errors", "refused", "recovery: median, worst",
    "at rest after", "broken invariants",
)  # fmt: skip
_TIMES = ("scenario", "run", "first text: p50, p99", "refusal: p50, p99", "tokens per second", "most growth")


def write_report(path: Path, results: Sequence[Result], command: str) -> None:
    """Write what ``results`` have shown to ``path``; ``command`` is how to get them again."""
    head = _HEAD.format(command=command, machine=_machine(), affected=AFFECTED)
    outcomes = _table(_COLUMNS, map(_outcome, results), texts=2)
    times = _table(_TIMES, map(_times, results), texts=1)
    path.write_text(f"{head}{outcomes}\n## Times\n\n{times}{_TAIL}")


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, texts: int) -> str:
    """A Markdown table whose columns after the first ``texts`` ones are numbers."""
    rule = ["---"] * texts + ["--:"] * (len(columns) - texts)
    lines: list[Sequence[object]] = [columns, rule, *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def _outcome(result: Result) -> Sequence[object]:
    recovery = "none" if result.recovery is None else "{:.2f} s, {:.2f} s".format(*result.recovery)
    return (
        result.scenario.name,
        result.scenario.what,
        result.requests,
        result.completed,
        result.aborted,
        result.errors,
        result.refused,
        recovery,
        f"{result.settled:.2f} s",
        len(result.wrong),
    )


def _times(result: Result) -> Sequence[object]:
    return (
        result.scenario.name,
        f"{result.seconds:.0f} s",
        _percentiles(result.first_words),
        _percentiles(result.refusals),
        f"{result.completed * result.scenario.load.tokens / result.seconds:.0f}",
        f"{result.growth:.0f} MB",
    )


def _percentiles(seconds: Sequence[float]) -> str:
    if len(seconds) < 2:
        return ""
    cuts = quantiles(seconds, n=100, method="inclusive")
    return f"{cuts[49] * 1000:.0f} ms, {cuts[98] * 1000:.0f} ms"


def _machine() -> str:
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(": ")[2]
            break
    return f"{os.cpu_count()} cores ({cpu}), Python {platform.python_version()}, {platform.system()}"
