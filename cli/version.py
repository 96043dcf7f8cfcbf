"""``vinoqueue version``: print the version."""

import click

from shared.runtime.version import VERSION


@click.command()
def version() -> None:
    """Print the version of Vinoqueue."""
    click.echo(VERSION)
