"""``vinoqueue version``."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import click


@click.command()
def version() -> None:
    """Print the version of Vinoqueue."""
    try:
        click.echo(installed_version("vinoqueue"))
    except PackageNotFoundError:
        raise click.ClickException("Vinoqueue is not installed here: run 'make run', or 'pip install' it.") from None
