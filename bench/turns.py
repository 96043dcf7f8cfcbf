"""Several engines on the same prompts, in turns, so that what the machine does otherwise falls on all of them."""

from collections.abc import Mapping, Sequence

from bench.alone import EngineAlone
from worker.engine.options import EngineOptions


def rates_in_turns(
    options: Mapping[str, EngineOptions], *, batches: Sequence[int], tokens: int, runs: int
) -> dict[str, dict[int, list[float]]]:
    """Return the tokens/s of each engine, by its name and the batch, of each of ``runs`` turns after a first.

    All are loaded at once, each in a process of its own. Every request is greedy and makes ``tokens`` tokens.
    """
    engines: dict[str, EngineAlone] = {}
    rates: dict[str, dict[int, list[float]]] = {name: {batch: [] for batch in batches} for name in options}
    try:
        for name, one in options.items():
            engines[name] = EngineAlone(one)
        for batch in batches:
            for turn in range(runs + 1):
                # New prompts in every turn, or the prefix cache would take the prefill away.
                prompts = [f"Write about the number {(turn + 1) * 1000 + at}." for at in range(batch)]
                for name in engines if turn % 2 else reversed(engines):
                    done = engines[name].run(prompts, tokens, batch)
                    if turn:
                        rates[name][batch].append(done["tokens"] / done["seconds"])
    finally:
        for engine in engines.values():
            engine.stop()
    return rates
