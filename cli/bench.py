"""``vinoqueue bench``: measure this installation on this machine."""

import click

PARTS = {
    "overhead": "the service against the engine alone, on the real default model",
    "plumbing": "what a token costs API, supervisor and store, with a simulated engine",
    "dispatch": "from a job in the queue to its claim, and to its first token",
    "streams": "thousands of open streams, and of new connections, on one API replica",
    "scale": "throughput against the ideal as simulated workers are added",
    "capacity": "what each call costs one store, and what large fleets would ask of it",
    "step": "what the engine's process does between two steps of the model",
    "tuning": "the pipeline's settings against each other; only when named",
    "weights": "formats of the weights: speed, size, perplexity; only when named, needs the extra 'convert'",
    "prefill": "how long streams wait while a long prompt comes in",
    "prefix": "what prompts that begin alike gain by going to the same worker",
    "regressions": "counts that no machine changes, against their budgets",
    "peers": "the same load through other servers; only when named, builds them in your cache first",
    "curves": "draws the results into docs/images; only when named, needs matplotlib",
}
"""The parts of :mod:`bench.main` and what each measures. Named here too, because to import them takes
all that a worker needs."""


@click.command(epilog="\b\nPARTS:\n" + "\n".join(f"  {name:<12} {what}" for name, what in PARTS.items()))
@click.argument("parts", nargs=-1, type=click.Choice(tuple(PARTS)), metavar="[PARTS]...")
def bench(parts: tuple[str, ...]) -> None:
    """Measure PARTS, or most of them, which takes half an hour; print tables and write bench/results/*.json."""
    try:
        from bench.main import run

        run(parts)
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from error
