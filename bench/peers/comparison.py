"""peers: the same load through this service, the engine alone and other servers, in turns.

All are up at once and one at a time is under load. Prompts are short, and then as long as a chat's with some history
behind it, which a server has to read before it can answer. ``python -m bench.peers.comparison 1 8 --words 0`` measures
some loads only. With ``--size 1.1B``, the model has that size and random weights, prompts are of three lengths, and of
the others only llama.cpp with the same file takes part, but also :data:`VARIANTS` of our workers.
"""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import Stream, chats
from bench.peers import PEERS, Peer
from bench.peers.environment import Unavailable
from bench.peers.llama_cpp import LlamaCpp
from bench.peers.shapes import SHAPES, random_model
from bench.prompts import distinct_prompts
from bench.reference_engine import ReferenceEngine, engine_options
from bench.report import ratios, save, table
from shared.runtime.event_loop import run as run_loop
from tests.support.fleet import Fleet
from worker.model.local import resolve
from worker.openvino.weights import serving_path

TOKENS = 128
WARM_UP_TOKENS = 16
CONCURRENCIES = (1, 4, 8, 16, 32)
LONG_WORDS = 300
"""Words, of little more than a token each, that make a prompt long; with the answer they fill half of a peer's slot."""
LONG_CONCURRENCIES = (1, 4, 8)
SIZED_WORDS = (0, 280, 980)
"""Words in addition to those of a question: with these, prompts of models of other sizes have about 20, 300 and 1,000
tokens, and those that a chat template adds."""
OURS = "vinoqueue"
VARIANTS = {"original": ("--weights", "original"), "stateful": ("--engine", "stateful")}
"""Other options for workers of models of other sizes. The stateful engine takes part where there is a single stream."""
ALONE = "the engine alone"
_LONGEST = 600.0
"""Seconds for one run, after which a server counts as failing."""


class Load(NamedTuple):
    """So many requests at once, with so many words more than a question in each prompt."""

    concurrency: int
    words: int = 0


@dataclass
class Run:
    """One run's outcome: tokens a second, and the median time to the first token and of a request in seconds."""

    rate: float
    first: float | None
    duration: float | None = None


@dataclass
class Contestant:
    """What is measured: ``load`` requests the given number of tokens for all prompts at once and returns the result."""

    name: str
    load: Callable[[list[str], int], Run]
    runs: list[Run] = field(default_factory=list)
    failure: str = ""


def run(
    folder: Path,
    *,
    runs: int = 5,
    concurrencies: Sequence[int] = CONCURRENCIES,
    size: str = "",
    words: Sequence[int] = (),
    tokens: int = TOKENS,
    variants: Collection[str] = tuple(VARIANTS),
) -> dict[str, Any]:
    """Measure, print the table, and return the result.

    ``size`` is a size in :data:`~bench.peers.shapes.SHAPES`; empty: the default model. ``words`` are the lengths of
    prompts, in words more than a question; empty: those in this module's constants. ``tokens`` are those of an answer.
    ``variants`` are keys of :data:`VARIANTS`, for models of other sizes.
    """
    if words or size:
        loads = [Load(concurrency, more) for more in words or SIZED_WORDS for concurrency in concurrencies]
    else:
        loads = [Load(concurrency) for concurrency in concurrencies]
        loads += [Load(concurrency, LONG_WORDS) for concurrency in concurrencies if concurrency in LONG_CONCURRENCIES]
    model = resolve(f"random={random_model(size)}" if size else "default")
    chosen = {name: VARIANTS[name] for name in variants if size}
    peers: tuple[Peer, ...] = (LlamaCpp(),) if size else PEERS
    results = f"peers-{size}" if size else "peers"
    failures = _prepare(peers)
    most = max(concurrencies)
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        alone = []
        options = engine_options(model, max_batch=most)
        if size:
            serving_path(options, print)  # The conversion takes longer than a test waits for a worker.
        else:
            engine = ReferenceEngine(options)
            stack.callback(engine.stop)
            alone = [Contestant(ALONE, partial(_alone, engine))]
        fleet = Fleet(folder, local=True)
        stack.callback(fleet.stop)
        fleet.worker("--max-batch", str(most), "--model", f"{model.name}={model.path}")
        for name, arguments in chosen.items():
            fleet.worker(*arguments, "--max-batch", str(most), "--model", f"{name}={model.path}")
        fleet.api()
        for load in loads:
            with ExitStack() as servers:
                contestants = [
                    *alone,
                    Contestant(OURS, partial(_served, fleet.port, model.name)),
                    *_started(servers, peers, failures, model.path, load.concurrency, folder),
                ]
                contestants += [
                    Contestant(f"{OURS}, {name}", partial(_served, fleet.port, name))
                    for name in chosen
                    if name != "stateful" or load.concurrency == 1
                ]
                compare(contestants, load, runs, tokens)
            rows += rows_of(contestants, load)
            save(results, {"rows": rows})
    print(table(f"{results}: {tokens} tokens a request, greedy, medians of {runs} alternating runs", rows))
    return {"rows": rows}


def _prepare(peers: Sequence[Peer]) -> dict[str, str]:
    """Install every peer; return why some can't be, by name."""
    failures = {}
    for peer in peers:
        try:
            peer.environment.prepare()
        except Unavailable as reason:
            failures[peer.name] = str(reason)
    return failures


def _started(
    servers: ExitStack,
    peers: Sequence[Peer],
    failures: dict[str, str],
    model: Path,
    slots: int,
    folder: Path,
) -> list[Contestant]:
    contestants = []
    for peer in peers:
        contestant = Contestant(peer.name, _never, failure=failures.get(peer.name, ""))
        contestants.append(contestant)
        if contestant.failure:
            continue
        try:
            server = peer.start(model, slots, folder)
        except Unavailable as reason:
            contestant.failure = str(reason)
        else:
            servers.callback(server.stop)
            contestant.load = partial(_served, server.port, "default")
    return contestants


def compare(contestants: list[Contestant], load: Load, runs: int, tokens: int = TOKENS) -> None:
    """Run all in turns, once to warm up and then ``runs`` times; one that fails takes no further part."""
    for turn in range(runs + 1):
        # Peers are started anew for each load, while we still have the prompts of the loads before in our cache.
        prompts = distinct_prompts(turn * 100 + load.concurrency, load.concurrency, load.words)
        for contestant in contestants:
            if contestant.failure:
                continue
            try:
                if turn == 0:
                    contestant.load(prompts, WARM_UP_TOKENS)
                else:
                    contestant.runs.append(contestant.load(prompts, tokens))
            except Unavailable as reason:
                contestant.failure = str(reason)


def _alone(engine: ReferenceEngine, prompts: list[str], tokens: int) -> Run:
    answer = engine.run(prompts, tokens, len(prompts))
    return Run(answer["tokens"] / answer["seconds"], answer["first"] if len(prompts) == 1 else None)


def _served(port: int, model: str, prompts: list[str], tokens: int) -> Run:
    async def load() -> list[Stream]:
        async with asyncio.timeout(_LONGEST):
            return await chats(port, model, prompts, tokens, len(prompts))

    try:
        streams = run_loop(load())
    except TimeoutError:
        raise Unavailable(f"no end within {_LONGEST:.0f} s") from None
    except OSError as error:
        raise Unavailable(f"no connection: {error}") from None
    failed = [stream for stream in streams if not (stream.complete and stream.pieces)]
    if failed:
        raise Unavailable(f"{len(failed)} of {len(streams)} answers were not complete (status {failed[0].status})")
    seconds = max(stream.ended for stream in streams) - min(stream.began for stream in streams)
    first, duration = (
        statistics.median(getattr(stream, end) - stream.began for stream in streams) for end in ("first", "ended")
    )
    return Run(sum(stream.tokens for stream in streams) / seconds, first, duration)


def _never(prompts: list[str], tokens: int) -> Run:
    raise Unavailable("it was not started")


def rows_of(contestants: list[Contestant], load: Load) -> list[dict[str, Any]]:
    """A row for each, with its figures or the reason why it has none."""
    by_name = {contestant.name: contestant for contestant in contestants}
    alone, ours = (by_name[name].runs if name in by_name else [] for name in (ALONE, OURS))
    rows = []
    for contestant in contestants:
        row: dict[str, Any] = dict.fromkeys(_HEADS, "")
        row |= {"concurrency": load.concurrency, "words more": load.words}
        row |= {"server": contestant.name, "failure": contestant.failure[:300]}
        if contestant.runs and not contestant.failure:
            rates, own_rates = ([run.rate for run in them] for them in (contestant.runs, ours))
            firsts = [run.first for run in contestant.runs if run.first is not None]
            durations = [run.duration for run in contestant.runs if run.duration is not None]
            row |= {
                "tokens/s": statistics.median(rates),
                "to the engine alone": ratios(rates, [run.rate for run in alone]) if alone else "",
                "ours to it": ratios(own_rates, rates),
                "TTFT ms": statistics.median(firsts) * 1000 if firsts else "",
            }
            if durations:
                row["request s"] = statistics.median(durations)
                row["ours to its"] = ratios([run.duration or 0 for run in ours], durations)
        rows.append(row)
    return rows


_HEADS = ("concurrency", "words more", "server", "tokens/s", "to the engine alone", "ours to it", "TTFT ms",
          "request s", "ours to its", "failure")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.peers.comparison")
    parser.add_argument("concurrencies", nargs="*", type=int, default=CONCURRENCIES)
    parser.add_argument("--size", choices=SHAPES, default="", help="the default model without it")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--words", nargs="+", type=int, default=(), help="words in prompts, besides a question")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens of an answer")
    parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=tuple(VARIANTS), help="with --size")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vinoqueue-bench-") as scratch:
        run(Path(scratch), **vars(given))
