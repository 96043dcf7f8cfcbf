"""telemetry: what tracing and JSON logs cost, against fleets without them.

All fleets run at once and are loaded in turns, in changing order. The CPU time of API and worker is compared too: it
shows differences that the rate of an engine on the same CPUs hides. Spans go to a server in this process that reads and
drops them, because a collector is usually on another host.
"""

import random
import timeit
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from quart import Request

from api.chat import span as chat_span
from api.http.exchange import HttpExchange, begin_span, end_span
from bench.load import chats
from bench.prompts import distinct_prompts
from bench.report import ratios, save, table
from shared.protocol.request import ChatRequest
from shared.runtime.event_loop import run as run_loop
from shared.tracing import NO_TRACING
from tests.support.fleet import Fleet
from worker.jobs.attempt import Attempt
from worker.jobs.attempt_recorder import record
from worker.processes.child import cpu_seconds

SLOTS = 32
TOKENS = 128


class Engine(NamedTuple):
    """An engine to measure with."""

    title: str
    worker: tuple[str, ...]
    """Options of its worker."""
    requests: int
    """Number of requests of a turn, per slot."""


SIMULATED = ("--engine", "simulated", "--model", "sim", "--sim-step", "0", "--sim-tokens", str(TOKENS))
ENGINES = (
    Engine("simulated, no pause between steps", SIMULATED, 4),
    Engine("default model", (), 1),
)


def run(folder: Path, *, runs: int = 9) -> dict[str, Any]:
    """Measure, print the tables, and return the result."""
    rows: list[dict[str, object]] = []
    off = _off_seconds()
    for number, engine in enumerate(ENGINES):
        rows += _compare(folder / str(number), engine, runs, off)
    print(table(f"telemetry: {SLOTS} streams of {TOKENS} tokens, medians and spread of {runs} turns", rows))
    print(f"Tracing that is off takes {off * 1e6:.1f} µs of a request in API and worker together.")
    save("telemetry", {"rows": rows, "off": off})
    return {"rows": rows, "off": off}


def _compare(folder: Path, engine: Engine, runs: int, off: float) -> list[dict[str, object]]:
    with ExitStack() as stack:
        collector = stack.enter_context(_sink())
        modes = {
            "neither": (),
            "tracing": ("--otlp-traces-endpoint", collector),
            "JSON logs": ("--log-format", "json"),
        }
        fleets = {}
        for number, (mode, telemetry) in enumerate(modes.items()):
            fleets[mode] = fleet = Fleet(folder / str(number), local=True)
            stack.callback(fleet.stop)
            fleet.worker(*engine.worker, "--max-batch", str(SLOTS), *telemetry)
            fleet.api(*telemetry)
        rates: dict[str, list[float]] = {mode: [] for mode in modes}
        costs: dict[str, list[float]] = {mode: [] for mode in modes}
        for turn in range(runs + 1):
            for mode in random.sample([*modes], len(modes)):
                rate, cost = _load(fleets[mode], engine, turn)
                if turn:
                    rates[mode].append(rate)
                    costs[mode].append(cost)
    return [
        {
            "engine": engine.title,
            "with": mode,
            "tokens/s": median(rates[mode]),
            "to neither": ratios(rates[mode], rates["neither"]),
            "CPU µs/token": median(costs[mode]) * 1e6,
            "CPU to neither": ratios(costs[mode], costs["neither"]),
            "off, share of CPU": f"{off / (median(costs['neither']) * TOKENS):.3%}" if mode == "neither" else "",
        }
        for mode in modes
    ]


def _load(fleet: Fleet, engine: Engine, turn: int) -> tuple[float, float]:
    """Load ``fleet``; return tokens per second, and CPU seconds of its API and supervisor per token."""
    prompts = distinct_prompts(turn, engine.requests * SLOTS)
    before = _cpu(fleet)
    streams = run_loop(chats(fleet.port, fleet.workers()[0]["model"], prompts, TOKENS, SLOTS))
    assert all(stream.complete for stream in streams)
    tokens = sum(stream.tokens for stream in streams)
    seconds = max(stream.ended for stream in streams) - min(stream.began for stream in streams)
    return tokens / seconds, (_cpu(fleet) - before) / tokens


def _cpu(fleet: Fleet) -> float:
    return sum(cpu_seconds(process.popen.pid) for process in fleet.processes)


def _off_seconds(count: int = 100_000) -> float:
    """Return the time that one request takes to find out that tracing is off."""
    request = ChatRequest(model="m")
    attempt = cast(Attempt, SimpleNamespace(queued=SimpleNamespace(trace=None)))

    def once() -> None:
        span = begin_span(NO_TRACING, cast(Request, None), 0.0)
        chat_span.describe_request(span, request)
        record(NO_TRACING, attempt)
        end_span(cast(HttpExchange, SimpleNamespace(span=span)), cast(Request, None))

    return min(timeit.repeat(once, number=count, repeat=5)) / count


class _Drop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _sink() -> Iterator[str]:
    """Run a server that drops what it gets; yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Drop)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
    finally:
        server.shutdown()
        server.server_close()
