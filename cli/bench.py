"""``vinoqueue bench``: run the benchmarks on this machine."""

from importlib.util import find_spec

import click

PARTS = {
    "overhead": "the service compared with the bare engine, with the default model",
    "plumbing": "CPU time per token in the API, supervisor and store, with a simulated engine",
    "dispatch": "latency from enqueueing a job to its claim and to its first token",
    "streams": "thousands of open streams and new connections on one API replica",
    "scale": "throughput relative to linear scaling as simulated workers are added",
    "capacity": "store cost of each operation, and the store load of large fleets",
    "step": "per-step host overhead of the engine process",
    "tuning": "pipeline settings compared; only when named",
    "weights": "weight formats by speed, size and perplexity; only when named, needs the extra 'convert'",
    "prefill": "stalls of running streams while a long prompt is prefilled",
    "prefix": "gain from prefix routing for prompts with a shared prefix",
    "batch": "a batch on an idle worker, and first tokens of other requests beside it",
    "regressions": "machine-independent counts, checked against their budgets",
    "peers": "the same load on other servers; only when named, builds them in your cache first",
    "curves": "plots the results into docs/images; only when named, needs matplotlib",
}
"""The parts of :mod:`bench.main` and what each measures. Repeated here because importing :mod:`bench.main` requires
the worker's dependencies."""


@click.command(epilog="\b\nPARTS:\n" + "\n".join(f"  {name:<12} {what}" for name, what in PARTS.items()))
@click.argument("parts", nargs=-1, type=click.Choice(tuple(PARTS)), metavar="[PARTS]...")
def bench(parts: tuple[str, ...]) -> None:
    """Run the benchmarks PARTS; without PARTS, most of them, which takes half an hour.

    Prints tables and writes bench/results/*.json.
    """
    if find_spec("bench") is None:
        raise click.ClickException("Benchmarks run only from Vinoqueue's repository: 'make bench' there.")
    try:
        from bench.main import run

        run(parts)
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from error
