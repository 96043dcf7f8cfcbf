"""start: from ``vinoqueue up``, and other causes, to the first token of a chat sent at once; memory: what it takes.

On a busy machine, CPU times change less than durations. With ``against``, another ``vinoqueue`` takes turns, or
llama.cpp's ``llama-server`` with the default model's file.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from bench.load import Stream, chats
from bench.prompts import distinct_prompts
from bench.reference_engine import ReferenceEngine, engine_options
from bench.report import ratios, save, table, with_spread
from shared.runtime.event_loop import run as run_loop
from tests.support.fleet import free_port
from worker.model.local import resolve
from worker.model.source import DEFAULT_NAME

_NAMES = {
    "valkey-server": "store",
    "engine.child": "engine",
    "prompt.child": "prompts",
    "embed.child": "prompts",
    "grammar.child": "grammars",
    "cli.main api": "API",
    "cli.main worker": "worker",
}
"""What is in the command line of each process; that of ``up`` has none of these."""
_POLL, _IDLE = 0.05, 6.0  # seconds between attempts, and after a chat: processes give memory back
_TICKS = os.sysconf("SC_CLK_TCK")


_T = TypeVar("_T")


class Process(NamedTuple):
    """A process of the service."""

    pid: int
    name: str
    started: float  # these two in seconds
    cpu: float
    size: float  # proportional, in MiB


class _Service:
    """A ``vinoqueue`` that runs until the end of the context."""

    def __init__(self, command: Path, folder: Path, port: int, arguments: Sequence[object], **environment: str) -> None:
        """``command`` with ``arguments``, beside an API on ``port``, logs to ``folder``."""
        self.began, self.port = time.perf_counter(), port
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with (folder / f"{arguments[0]}.log").open("wb") as log:
            line = [str(command), *map(str, arguments)]
            self.process = subprocess.Popen(line, stdout=log, stderr=log, env=inherited | environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def first(self, model: str = DEFAULT_NAME) -> Stream:
        """Send chats until one has a token, and return it."""
        while self.process.poll() is None:
            with suppress(OSError):
                if (stream := self.chat(model)).first:
                    return stream
            time.sleep(_POLL)
        raise RuntimeError(f"{self.process.args!r} has ended")

    def chat(self, model: str = DEFAULT_NAME, prompt: int = 0) -> Stream:
        """Send one chat."""
        return run_loop(chats(self.port, model, distinct_prompts(prompt, 1), 8, 1))[0]


_LLAMA = "llama-server"
"""The file name of llama.cpp's server."""


def _up(command: Path, folder: Path, *arguments: object, **environment: str) -> _Service:
    port = free_port()
    if command.name == _LLAMA:
        arguments = ("--model", resolve("default").path, "--threads", os.cpu_count(), "--no-webui")
    else:
        arguments = ("up", *arguments)
    return _Service(command, folder, port, (*arguments, "--port", port), **environment)


_OTHER = "other"
"""Another name of the same model."""


def _starts(command: Path, folder: Path) -> tuple[dict[str, float], list[Process]]:
    """Return the seconds from each cause to the first token that comes of it, and the processes of ``up`` then."""
    found = {}
    with _up(command, folder) as up:
        found["'up'"] = up.first().first - up.began
        processes = processes_of(up.process.pid)
        found["'up', CPU time"] = sum(one.cpu for one in processes)
    with _up(command, folder) as up:
        requests = [up.first(), *(up.chat(prompt=number) for number in range(1, 10))]
        found |= {f"request {at + 1}": requests[at].first - requests[at].began for at in (0, 9)}
        if command.name == _LLAMA:
            return found, processes
        engine = next(one for one in processes_of(up.process.pid) if one.name == "engine")
        os.kill(engine.pid, signal.SIGKILL)
        killed = time.perf_counter()
        found["an engine after a crash"] = up.first().first - killed
        with _Service(command, folder, up.port, ("worker", "--served-model-name", _OTHER)) as worker:
            found["a worker added to a running API"] = worker.first(_OTHER).first - worker.began
    with tempfile.TemporaryDirectory(dir=folder) as cache, _up(command, folder, XDG_CACHE_HOME=cache) as up:
        found["'up', converting weights"] = up.first().first - up.began
    began = time.perf_counter()
    ReferenceEngine(engine_options(resolve("default"))).stop()
    found["the pipeline alone, loaded without Vinoqueue and without a token"] = time.perf_counter() - began
    catalogue = folder / "models.toml"
    entry = '[models."{}"]\nsource = "default"\nmemory = "3GB"\n'
    catalogue.write_text("".join(map(entry.format, (DEFAULT_NAME, _OTHER))))
    with _up(command, folder, "--models", catalogue, "--memory", "4GB", "--swap-wait", 0.1) as up:
        up.first()
        time.sleep(_IDLE)
        asked = time.perf_counter()
        found["a model in place of another on a node"] = up.first(_OTHER).first - asked
    return found, processes


def _sizes(command: Path, folder: Path) -> dict[str, float]:
    """Return the proportional set sizes, in MiB, of the processes of ``up``, and of a second worker beside it."""
    with _up(command, folder) as up:
        up.first()
        time.sleep(_IDLE)
        processes = processes_of(up.process.pid)
        sizes = {name: sum(one.size for one in processes if one.name == name) for name in ("up", *_NAMES.values())}
        sizes["all"] = sum(sizes.values())
        if command.name == _LLAMA:
            return {"all": sizes["all"]}
        with _Service(command, folder, up.port, ("worker", "--served-model-name", _OTHER)) as worker:
            worker.first(_OTHER)
            time.sleep(_IDLE)
            both = processes_of(up.process.pid) + processes_of(worker.process.pid)
            sizes["a second worker adds"] = sum(one.size for one in both) - sizes["all"]
        return sizes


def processes_of(root: int) -> list[Process]:
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
                found.append(Process(int(entry.name), name, int(fields[19]) / _TICKS, cpu, size))
    return sorted(found, key=lambda process: process.started)


def _turns(measure: Callable[[Path, Path], _T], folder: Path, runs: int, against: str | None) -> dict[str, list[_T]]:
    """Return what ``measure`` finds in turns. The first, which may convert weights and compile code, does not count."""
    builds = {"this": Path(sys.executable).with_name("vinoqueue")} | ({"other": Path(against)} if against else {})
    turns = [{name: measure(command, folder) for name, command in builds.items()} for _ in range(runs + 1)]
    return {name: [turn[name] for turn in turns[1:]] for name in builds}


def _print(title: str, head: str, found: dict[str, list[dict[str, float]]]) -> list[dict[str, object]]:
    """Print a table of what was found for each build, and return its rows."""
    rows: list[dict[str, object]] = []
    for name in found["this"][0]:
        values = {build: [each[name] for each in turns if name in each] for build, turns in found.items()}
        rows.append({head: name, **{build: with_spread(each) if each else "" for build, each in values.items()}})
        if "other" in values:
            rows[-1]["ratio"] = ratios(values["this"], values["other"]) if values["other"] else ""
    print(table(title, rows))
    return rows


def run(folder: Path, *, runs: int = 5, against: str | None = None) -> dict[str, Any]:
    """Measure starts, print the tables, and return the result. ``against`` is another command."""
    found = _turns(_starts, folder, runs, against)
    times = {build: [seconds for seconds, _ in turns] for build, turns in found.items()}
    title = f"start: seconds to the first token of a chat sent at once, medians of {runs} alternating runs"
    rows = _print(title, "seconds from the start of", times)
    last = found["this"][-1][1]
    each = [{"process": one.name, "started s": one.started - last[0].started, "CPU s": one.cpu} for one in last]
    print(table("start: the processes of this build until the first token, in the last run", each))
    save("start", {"rows": rows, "processes": each})
    return {"rows": rows}


def memory(folder: Path, *, runs: int = 3, against: str | None = None) -> dict[str, Any]:
    """Measure memory, print the table, and return the result. ``against`` is another command."""
    found = _turns(_sizes, folder, runs, against)
    title = f"memory: proportional set sizes, idle after one chat, medians of {runs} alternating runs"
    rows = _print(title, "MiB", found)
    save("memory", {"rows": rows})
    return {"rows": rows}
