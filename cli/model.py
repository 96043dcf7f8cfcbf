"""``vinoqueue model``: manage the models on this machine."""

from collections.abc import Callable
from pathlib import Path

import click


@click.group()
def model() -> None:
    """List, download and locate models.

    A SOURCE has the same form as for 'vinoqueue worker --model': default, a GGUF file, an OpenVINO IR folder, or a
    Hugging Face id such as org/name or org/name:file.gguf.
    """


@model.command("list")
def list_() -> None:
    """List the models on this machine that can be named without a path."""
    from worker.model.local import list_models

    for listed in list_models():
        click.echo(f"{listed.source}  {listed.size / 2**20:.0f} MB  {listed.path}")


@model.command()
@click.argument("source")
def pull(source: str) -> None:
    """Download a model from Hugging Face unless it is cached, and print its path."""
    from worker.model.local import pull as pull_source

    _print_path(pull_source, source)


@model.command()
@click.argument("source")
def path(source: str) -> None:
    """Print the path of a model on this machine, without downloading it."""
    from worker.model.local import path as source_path

    _print_path(source_path, source)


def _print_path(find: Callable[[str], Path], source: str) -> None:
    from worker.model.local import ModelError

    try:
        click.echo(find(source))
    except ModelError as error:
        raise click.ClickException(str(error)) from None
