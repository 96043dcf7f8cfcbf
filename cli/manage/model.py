"""``vinoqueue model``: manage the models on this machine, and the ones that the service remembers."""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from arq.connections import ArqRedis

from api.models.commands import command_model
from cli.base.instances import store_option
from cli.base.output import echo
from cli.base.store_reader import actor, read_store
from shared.protocol.model_commands import COMMAND_TTL, Action, CommandRefused, ModelCommand
from shared.protocol.registry import DeclaredModel, NodeInfo, forget_model, read_registry
from shared.runtime.logs import escaped

_POLL = 0.2
"""Seconds between two looks at the nodes while a model loads."""


@click.group()
def model() -> None:
    """List, download, locate, remove, load, unload and forget models.

    A SOURCE has the same form as for 'vinoqueue worker --model': default, a GGUF file, an OpenVINO IR folder, or a
    Hugging Face id such as org/name or org/name:file.gguf.
    """


@model.command("list")
def list_() -> None:
    """List the models on this machine that can be named without a path."""
    from worker.model.local import list_models

    for listed in list_models():
        echo(escaped(f"{listed.source}  {listed.size / 2**20:.0f} MB  {listed.path}"))


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


@model.command()
@click.argument("source")
def remove(source: str) -> None:
    """Remove a model that was downloaded from Hugging Face, and print its former path.

    Workers that have it loaded keep it. A catalogue's model is downloaded again at its next load.
    """
    from worker.model.local import remove as remove_source

    _print_path(remove_source, source)


@model.command(params=[store_option()])
@click.argument("name")
@click.option("--no-wait", is_flag=True, help="Return at once instead of when the model is loaded.")
def load(redis_url: str, name: str, no_wait: bool) -> None:
    """Have a node load the model NAME of its catalogue, before requests need it.

    It takes memory from other models as waiting requests would, and stays for the time of its 'keep'. A pause after a
    failure ends.
    """

    async def command(redis: ArqRedis) -> str:
        own, sent = await _command(redis, name, "load")
        return f"Loading the model '{own}'." if no_wait else await _loaded(redis, own, sent)

    echo(escaped(read_store(redis_url, command)))


@model.command(params=[store_option()])
@click.argument("name")
def unload(redis_url: str, name: str) -> None:
    """Have all nodes unload the model NAME until requests need it again.

    Requests in progress have the nodes' --swap-drain to finish; the others go on when the model is loaded again.
    """

    async def command(redis: ArqRedis) -> str:
        own, _ = await _command(redis, name, "unload")
        return f"Unloading the model '{own}'."

    echo(escaped(read_store(redis_url, command)))


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
    echo(escaped(f"Forgot the model '{name}'."))


async def _command(redis: ArqRedis, name: str, action: Action) -> tuple[str, ModelCommand]:
    """Command all nodes about the model or alias ``name``; return the model's own name and the command."""
    nodes = (await read_registry(redis)).nodes
    names = {known: entry.name for node in nodes for entry in node.models for known in (*entry.aliases, entry.name)}
    if name not in names:
        listed = ", ".join(sorted(set(names.values()))) or "none"
        raise click.ClickException(escaped(f"No node has the model '{name}' in its catalogue. Models: {listed}."))
    try:
        return names[name], await command_model(redis, nodes, names[name], action, by=actor())
    except CommandRefused as refusal:
        raise click.ClickException(escaped(str(refusal))) from None


async def _loaded(redis: ArqRedis, model: str, command: ModelCommand) -> str:
    """Wait until ``model`` is loaded; return where."""
    ends, told = time.monotonic() + COMMAND_TTL, ""
    entries: list[tuple[NodeInfo, DeclaredModel]] = []
    while time.monotonic() < ends:
        nodes = (await read_registry(redis)).nodes
        entries = [(node, entry) for node in nodes for entry in node.models if entry.name == model]
        # Before a node has read the command, its record says how an earlier load ended.
        obeying = [(node, entry) for node, entry in entries if entry.command == command.id]
        if loaded := [node.host for node, entry in obeying if entry.status == "loaded"]:
            return f"The model '{model}' is loaded on {', '.join(loaded)}."
        if len(obeying) == len(entries) and all(entry.status == "failed" for _, entry in obeying):
            break
        if (now := _states(obeying)) != told:
            told = now
            echo(escaped(now), err=True)
        await asyncio.sleep(_POLL)
    states = _states(entries)
    raise click.ClickException(escaped(f"The model '{model}' is not loaded. {states or 'No node has it any more'}."))


def _states(entries: Iterable[tuple[NodeInfo, DeclaredModel]]) -> str:
    return "; ".join(f"{node.host}: {entry.detail or entry.status}" for node, entry in entries)


def _print_path(find: Callable[[str], Path], source: str) -> None:
    from worker.model.local import ModelError

    try:
        echo(str(find(source)))
    except ModelError as error:
        raise click.ClickException(escaped(str(error))) from None
