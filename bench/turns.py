"""Several engines on the same prompts, in turns, so that what the machine does otherwise falls on all of them."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from bench.alone import EngineAlone
from worker.engine.options import EngineOptions

Rates = dict[str, dict[int, list[float]]]
"""A rate for each turn, by the engine's name and the batch."""

_Turns = dict[str, dict[int, list[dict[str, Any]]]]
"""What :meth:`EngineAlone.run` returned in each turn, likewise."""


class Long(NamedTuple):
    """What each turn behind long prompts showed: steps/s once they are read, and the first tokens that come in a
    second, of which reading the prompts is nearly all."""

    steps: list[float]
    firsts: list[float]


def rates_in_turns(options: Mapping[str, EngineOptions], *, batches: Sequence[int], tokens: int, runs: int) -> Rates:
    """Return the tokens/s of each engine of ``runs`` turns after a first.

    All are loaded at once, each in a process of its own. Every request is greedy and makes ``tokens`` tokens.
    """
    return {
        name: {batch: [done["tokens"] / done["seconds"] for done in turns] for batch, turns in by_batch.items()}
        for name, by_batch in _in_turns(options, batches, tokens, runs, "").items()
    }


def long_in_turns(
    options: Mapping[str, EngineOptions], *, batch: int, tokens: int, runs: int, words: int
) -> dict[str, Long]:
    """Return likewise what each engine shows while ``batch`` answers follow prompts of ``words`` words, which take two
    to three tokens each."""
    preface = " ".join(f"word{number}" for number in range(words))
    return {
        name: Long(
            steps=[1 / median(done["gaps"]) for done in by_batch[batch]],
            firsts=[1 / done["first"] for done in by_batch[batch]],
        )
        for name, by_batch in _in_turns(options, (batch,), tokens, runs, preface).items()
    }


def _in_turns(
    options: Mapping[str, EngineOptions],
    batches: Sequence[int],
    tokens: int,
    runs: int,
    preface: str,
) -> _Turns:
    engines: dict[str, EngineAlone] = {}
    turns: _Turns = {name: {batch: [] for batch in batches} for name in options}
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
                        turns[name][batch].append(done)
    finally:
        for engine in engines.values():
            engine.stop()
    return turns
