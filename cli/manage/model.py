"""``vinoqueue model``: manage the models on this machine, and the ones that the service remembers."""

from collections.abc import Callable
from pathlib import Path

import click
from arq.connections import ArqRedis

from cli.base.instances import store_option
from cli.base.store_reader import read_store
from shared.protocol.registry import forget_model, read_registry
from shared.runtime.logs import escaped


@click.group()
def model() -> None:
    """List, download, locate and forget models.

    A SOURCE has the same form as for 'vinoqueue worker --model': default, a GGUF file, an OpenVINO IR folder, or a
    Hugging Face id such as org/name or org/name:file.gguf.
    """


@model.command("list")
def list_() -> None:
    """List the models on this machine that can be named without a path."""
    from worker.model.local import list_models

    for listed in list_models():
        click.echo(escaped(f"{listed.source}  {listed.size / 2**20:.0f} MB  {listed.path}"))


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


@model.command(params=[store_option()])
@click.argument("name")
def forget(redis_url: str, name: str) -> None:
    """Forget a model that no worker serves any more: requests for NAME then get 404 instead of 503.

    Without this, a model is forgotten an hour after its last worker has gone.
    """

    async def forget_unserved(redis: ArqRedis) -> None:
        workers, _, _, models = await read_registry(redis)
        if serving := [worker.id for worker in workers if worker.model == name]:
            raise click.ClickException(
                escaped(f"The model '{name}' has workers: {', '.join(serving)}. Stop them first, or drain them.")
            )
        if name not in models:
            owner = next((known.name for known in models.values() if name in known.aliases), None)
            reason = f"'{name}' is an alias of '{owner}'" if owner else f"No model '{name}' is remembered"
            raise click.ClickException(escaped(f"{reason}. Remembered: {', '.join(sorted(models)) or 'none'}."))
        await forget_model(redis, name)

    read_store(redis_url, forget_unserved)
    click.echo(escaped(f"Forgot the model '{name}'."))


def _print_path(find: Callable[[str], Path], source: str) -> None:
    from worker.model.local import ModelError

    try:
        click.echo(find(source))
    except ModelError as error:
        raise click.ClickException(escaped(str(error))) from None
