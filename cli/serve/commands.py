"""``vinoqueue up``, ``api``, ``worker``, its commands ``drain`` and ``resume``, and ``node``.

Each server imports its package only when it runs, so that the API process never imports OpenVINO.
"""

from collections.abc import Awaitable, Callable

import click
from arq.connections import ArqRedis
from click.core import ParameterSource

from api.fleet.commands import CommandIgnored, UnknownWorker, await_worker, command_worker
from cli.base.instances import store_of, store_option
from cli.base.options import SettingsCommand, SettingsGroup, flag
from cli.base.output import echo
from cli.base.store_reader import actor, read_store
from shared.runtime.logs import escaped
from shared.runtime.settings import ApiSettings, NodeSettings, UpSettings, WorkerSettings


@click.command(params=[store_option()])
@click.argument("worker", metavar="ID")
def drain(redis_url: str, worker: str) -> None:
    """Take worker ID out of service, and wait until it has no request any more.

    It claims no more requests. Those that it runs have the worker's --drain seconds to finish; then other workers
    continue them. The worker keeps its model loaded until 'resume', or until it restarts.
    """

    async def run(redis: ArqRedis) -> None:
        info = await command_worker(redis, worker, "drain", by=actor())
        echo(escaped(f"{worker} drains: it has {info.used} requests."))
        await await_worker(redis, worker, lambda info: info.used == 0)
        echo(escaped(f"{worker} has no requests any more. To use it again: vinoqueue worker resume {worker}"))

    _command(redis_url, run)


@click.command(params=[store_option()])
@click.argument("worker", metavar="ID")
def resume(redis_url: str, worker: str) -> None:
    """Return worker ID to service after 'drain'."""

    async def run(redis: ArqRedis) -> None:
        info = await command_worker(redis, worker, "resume", by=actor())
        echo(escaped(f"{worker} is {info.status}."))

    _command(redis_url, run)


def _command(redis_url: str, run: Callable[[ArqRedis], Awaitable[None]]) -> None:
    try:
        read_store(redis_url, run)
    except (UnknownWorker, CommandIgnored) as error:
        raise click.ClickException(escaped(str(error))) from None


_IN_CATALOGUE = ("model", "served_model_name", "worker_id")
"""Options of a worker that a catalogue replaces."""

_OF_NODES = tuple(name for name in NodeSettings.model_fields if name not in (*WorkerSettings.model_fields, "models"))


def _check_options(settings: NodeSettings) -> None:
    """Raise :class:`click.UsageError` for a flag that has no effect, with or without a catalogue.

    Variables may have none: several commands share an environment, as in compose.yaml.
    """
    context = click.get_current_context()
    for name in _IN_CATALOGUE if settings.models else _OF_NODES:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            why = "with --models: the catalogue names the models" if settings.models else "without --models"
            raise click.UsageError(f"{flag(name)} has no effect {why}.")


def _run_up(settings: UpSettings) -> int:
    _check_options(settings)
    from cli.up.supervisor import run

    return run(settings)


def _run_api(settings: ApiSettings) -> int:
    from api.main import run

    return run(settings)


def _run_worker(settings: WorkerSettings) -> int:
    from worker.main import run

    return run(settings.model_copy(update={"redis_url": store_of(click.get_current_context(), settings.redis_url)}))


def _run_node(settings: NodeSettings) -> int:
    if not settings.models:
        raise click.UsageError("A node needs a catalogue: --models models.toml (VINOQUEUE_MODELS).")
    _check_options(settings)
    from worker.node.main import run

    return run(settings.model_copy(update={"redis_url": store_of(click.get_current_context(), settings.redis_url)}))


up = SettingsCommand(
    "up",
    UpSettings,
    _run_up,
    help="""Start a store, one worker and one API replica on this machine, each in its own process.

    Prints the address once the model is served. Ctrl-C or SIGTERM stops everything gracefully; a second Ctrl-C stops
    immediately.

    \b
    vinoqueue up
    vinoqueue up --port 9000 --device GPU --model ./my-model.gguf
    vinoqueue up --models models.toml --memory 24GB
    vinoqueue up --redis-url redis://store:6379/0
    """,
)

api = SettingsCommand(
    "api",
    ApiSettings,
    _run_api,
    help="""Start one API replica. It serves HTTP and submits jobs to the queue; it does not load a model.

    \b
    vinoqueue api --host 0.0.0.0 --redis-url redis://store:6379/0
    """,
)

worker = SettingsGroup(
    "worker",
    WorkerSettings,
    _run_worker,
    commands=[drain, resume],
    help="""Start one worker. It claims jobs from the queue and runs them in one continuous batch.

    Where 'vinoqueue up' runs on this machine, its store is the default.

    \b
    vinoqueue worker --redis-url redis://store:6379/0 --device GPU
    vinoqueue worker --model tiny=./tiny.gguf --max-batch 32 --cache-size 4
    vinoqueue worker drain ID
    """,
)

node = SettingsCommand(
    "node",
    NodeSettings,
    _run_node,
    help="""Start a node. It loads the models of a catalogue when requests wait for them, each in a worker of its own.

    \b
    vinoqueue node --models models.toml --memory 24GB --redis-url redis://store:6379/0
    """,
)
