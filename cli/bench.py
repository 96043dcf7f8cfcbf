"""``vinoqueue bench``: measure this installation on this machine."""

import click

_PARTS = ("overhead", "plumbing", "dispatch")


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(_PARTS))
def bench(parts: tuple[str, ...]) -> None:
    """Measure PARTS, or all of them; print tables and write bench/results/*.json.

    \b
    overhead   the service against the engine alone, on the real default model (minutes)
    plumbing   what a token costs API, supervisor and store, with a simulated engine
    dispatch   from a job in the queue to its first token
    """
    from bench.main import run

    run(parts)
