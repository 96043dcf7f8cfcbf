"""Several engines on the same prompts, in turns, so that what the machine does otherwise falls on all of them."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from bench.alone import EngineAlone
from worker.engine.options import EngineOptions

Rates = dict[str, dict[int, list[float]]]
"""A rate for each turn, by the engine's name and the batch."""


def rates_in_turns(options: Mapping[str, EngineOptions], *, batches: Sequence[int], tokens: int, runs: int) -> Rates:
    """Return the tokens/s of each engine of ``runs`` turns after a first.

    All are loaded at once, each in a process of its own. Every request is greedy and makes ``tokens`` tokens.
    """
    return _in_turns(options, batches, tokens, runs, "", lambda done: done["tokens"] / done["seconds"])


def steps_in_turns(
    options: Mapping[str, EngineOptions], *, batch: int, tokens: int, runs: int, words: int
) -> dict[str, list[float]]:
    """Return likewise the steps/s of each engine while ``batch`` answers follow prompts of ``words`` words, which take
    two to three tokens each; the time for the prompts is not in it."""
    preface = " ".join(f"word{number}" for number in range(words))
    rates = _in_turns(options, (batch,), tokens, runs, preface, lambda done: 1 / median(done["gaps"]))
    return {name: by_batch[batch] for name, by_batch in rates.items()}


def _in_turns(
    options: Mapping[str, EngineOptions],
    batches: Sequence[int],
    tokens: int,
    runs: int,
    preface: str,
    rate: Callable[[dict[str, Any]], float],
) -> Rates:
    engines: dict[str, EngineAlone] = {}
    rates: Rates = {name: {batch: [] for batch in batches} for name in options}
    try:
        for name, one in options.items():
            engines[name] = EngineAlone(one)
        for batch in batches:
            for turn in range(runs + 1):
                # New prompts in every turn, or the prefix cache would take the prefill away.
                prompts = [f"Write about the number {(turn + 1) * 1000 + at}. {preface}" for at in range(batch)]
                for name in engines if turn % 2 else reversed(engines):
                    done = engines[name].run(prompts, tokens, batch)
                    if turn:
                        rates[name][batch].append(rate(done))
    finally:
        for engine in engines.values():
            engine.stop()
    return rates
