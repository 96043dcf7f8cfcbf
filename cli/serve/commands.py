"""``vinoqueue up``, ``api``, ``worker``, its commands ``drain`` and ``resume``, and ``node``.

Each server imports its package only when it runs, so that the API process never imports OpenVINO.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import click
from click.core import ParameterSource

from cli.base.instances import store_of, store_option
from cli.base.options import SettingsCommand, SettingsGroup, flag
from shared.runtime.settings import ApiSettings, NodeSettings, UpSettings, WorkerSettings


@click.command(params=[store_option()])
@click.argument("worker", metavar="ID")
def drain(redis_url: str, worker: str) -> None:
    """Take worker ID out of service, and wait until it has no request any more.

    It claims no more requests. Those that it runs have the worker's --drain seconds to finish; then other workers
    continue them. The worker keeps its model loaded until 'resume', or until it restarts.
    """
    from cli.serve.draining import drain_worker  # imports what only the API needs

    drain_worker(redis_url, worker)


@click.command(params=[store_option()])
@click.argument("worker", metavar="ID")
def resume(redis_url: str, worker: str) -> None:
    """Return worker ID to service after 'drain'."""
    from cli.serve.draining import resume_worker

    resume_worker(redis_url, worker)


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


@contextmanager
def _imports() -> Iterator[None]:
    """Import without looking for garbage: modules are none."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def _run_up(settings: UpSettings) -> int:
    _check_options(settings)
    with _imports():
        from cli.up.supervisor import run

    return run(settings)


def _run_api(settings: ApiSettings) -> int:
    with _imports():
        from api.main import run

    return run(settings)


def _run_worker(settings: WorkerSettings) -> int:
    with _imports():
        from worker.main import run

    return run(settings.model_copy(update={"redis_url": store_of(click.get_current_context(), settings.redis_url)}))


def _run_node(settings: NodeSettings) -> int:
    if not settings.models:
        raise click.UsageError("A node needs a catalogue: --models models.toml (VINOQUEUE_MODELS).")
    _check_options(settings)
    with _imports():
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
