"""``vinoqueue model``: the models on this machine."""

from collections.abc import Callable
from pathlib import Path

import click

from cli.convert import convert


@click.group()
def model() -> None:
    """List, download, locate and convert models.

    A SOURCE is what 'vinoqueue worker --model' takes: default, a GGUF file, an OpenVINO IR folder, or a
    Hugging Face id such as org/name or org/name:file.gguf.
    """


@model.command("list")
def list_() -> None:
    """Show the models that are on this machine and need no path."""
    from worker.models import list_models

    for one in list_models():
        click.echo(f"{one.source}  {one.size / 2**20:.0f} MB  {one.path}")


@model.command()
@click.argument("source")
def pull(source: str) -> None:
    """Download a model from the Hugging Face hub, if it is not here yet, and print where it is."""
    from worker.models import pull as pull_source

    _print_place(pull_source, source)


@model.command()
@click.argument("source")
def path(source: str) -> None:
    """Print where a model is on this machine; downloads nothing."""
    from worker.models import path as source_path

    _print_place(source_path, source)


model.add_command(convert)


def _print_place(find: Callable[[str], Path], source: str) -> None:
    from worker.models import ModelError

    try:
        click.echo(find(source))
    except ModelError as error:
        raise click.ClickException(str(error)) from None
