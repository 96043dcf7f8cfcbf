"""start: from ``vinoqueue up`` to the first token of a chat sent at once, with cached weights; memory: what it takes.

On a busy machine, CPU times change less than durations. With ``against``, another ``vinoqueue`` takes turns.
"""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import chats
from bench.prompts import distinct_prompts
from bench.report import ratios, save, table, with_spread
from shared.runtime.event_loop import run as run_loop
from tests.support.fleet import free_port
from worker.model.source import DEFAULT_NAME

_NAMES = {
    "valkey-server": "store",
    "engine.child": "engine",
    "prompt.child": "prompts",
    "grammar.child": "grammars",
    "cli.main api": "API",
    "cli.main worker": "worker",
}
"""What is in the command line of each process; that of ``up`` has none of these."""
_POLL, _IDLE = 0.05, 6.0  # seconds between attempts, and after a chat: processes give memory back
_TICKS = os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    name: str
    started: float  # these two in seconds
    cpu: float
    size: float  # proportional, in MiB


def _start(command: Path, folder: Path, rest: float) -> tuple[float, list[_Process]]:
    """Return the seconds to the first token of ``up`` by ``command``, and its processes ``rest`` seconds later."""
    port, began, first = free_port(), time.perf_counter(), 0.0
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with (folder / "up.log").open("wb") as log:
        up = subprocess.Popen([command, "up", "--port", str(port)], stdout=log, stderr=log, env=environment)
    try:
        while not first and up.poll() is None:
            with suppress(OSError):
                first = run_loop(chats(port, DEFAULT_NAME, distinct_prompts(0, 1), 8, 1))[0].first
            time.sleep(rest if first else _POLL)
        return first - began, _processes(up.pid)
    finally:
        up.terminate()
        up.wait()


def _processes(root: int) -> list[_Process]:
    """Return the process ``root`` and its descendants, those that have started first."""
    found, family = [], {root}
    for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda entry: int(entry.name)):
        with suppress(OSError):  # it has ended
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(entry.name) in family or int(fields[1]) in family:
                family.add(int(entry.name))
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                name = next((name for part, name in _NAMES.items() if part in line), "up")
                size = int((entry / "smaps_rollup").read_text().partition("\nPss:")[2].split()[0]) / 1024
                cpu = (int(fields[11]) + int(fields[12])) / _TICKS
                found.append(_Process(name, int(fields[19]) / _TICKS, cpu, size))
    return sorted(found, key=lambda process: process.started)


def _turns(folder: Path, runs: int, against: str | None, rest: float = 0) -> dict[str, Any]:
    """Return the starts of each build. The first one, which may convert weights and compile code, does not count."""
    builds = {"this": Path(sys.executable).with_name("vinoqueue")} | ({"other": Path(against)} if against else {})
    turns = [{name: _start(command, folder, rest) for name, command in builds.items()} for _ in range(runs + 1)]
    return {name: [turn[name] for turn in turns[1:]] for name in builds}


def run(folder: Path, *, runs: int = 5, against: str | None = None) -> dict[str, Any]:
    """Measure starts, print the tables, and return the result. ``against`` is another ``vinoqueue`` command."""
    found = _turns(folder, runs, against)
    rows: list[dict[str, object]] = [{"build": build} for build in found]
    seconds = {build: [first for first, _ in starts] for build, starts in found.items()}
    cpu = {build: [sum(one.cpu for one in processes) for _, processes in starts] for build, starts in found.items()}
    for row, build in zip(rows, found, strict=True):
        for name, values in (("first token s", seconds), ("CPU s", cpu)):
            row |= {name: with_spread(values[build]), f"{name}, ratio": ratios(values["this"], values[build])}
    print(table(f"start: 'up' to the first token, second start, medians of {runs} alternating runs", rows))
    _, last = found["this"][-1]
    each = [{"process": one.name, "started s": one.started - last[0].started, "CPU s": one.cpu} for one in last]
    print(table("start: the processes of this build until the first token, in the last run", each))
    save("start", {"rows": rows, "processes": each})
    return {"rows": rows}


def memory(folder: Path, *, runs: int = 3, against: str | None = None) -> dict[str, Any]:
    """Measure memory, print the table, and return the result. ``against`` is another ``vinoqueue`` command."""
    rows: list[dict[str, object]] = [{"MiB": name} for name in ("up", *_NAMES.values(), "all")]
    for build, starts in _turns(folder, runs, against, _IDLE).items():
        for row in rows:
            sizes = [[one.size for one in each if row["MiB"] in (one.name, "all")] for _, each in starts]
            row[build] = with_spread([*map(sum, sizes)])
    print(table(f"memory: proportional set sizes, idle after one chat, medians of {runs} alternating runs", rows))
    save("memory", {"rows": rows})
    return {"rows": rows}
