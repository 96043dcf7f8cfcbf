"""``vinoqueue version``."""

import click

from shared.version import VERSION


@click.command()
def version() -> None:
    """Print the version of Vinoqueue."""
    click.echo(VERSION)
