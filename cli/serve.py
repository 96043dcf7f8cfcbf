"""The commands that serve. Each imports its room when it runs: the API's process never sees OpenVINO."""

from cli.options import SettingsCommand
from shared.runtime.settings import ApiSettings, UpSettings, WorkerSettings


def _run_up(settings: UpSettings) -> int:
    from cli.up import run

    return run(settings)


def _run_api(settings: ApiSettings) -> int:
    from api.main import run

    return run(settings)


def _run_worker(settings: WorkerSettings) -> int:
    from worker.main import run

    return run(settings)


up = SettingsCommand(
    "up",
    UpSettings,
    _run_up,
    help="""Start everything on this machine: a store, one worker and one API, each its own process.

    Prints the address once the model answers. Ctrl-C or SIGTERM ends all of it; a second Ctrl-C at once.

    \b
    vinoqueue up
    vinoqueue up --port 9000 --device GPU --model ./my-model.gguf
    vinoqueue up --redis-url redis://store:6379/0
    """,
)

api = SettingsCommand(
    "api",
    ApiSettings,
    _run_api,
    help="""Start one API replica: HTTP on one side, the queue on the other. It loads no model.

    \b
    vinoqueue api --host 0.0.0.0 --redis-url redis://store:6379/0
    """,
)

worker = SettingsCommand(
    "worker",
    WorkerSettings,
    _run_worker,
    help="""Start one worker: it takes jobs from the queue and generates for many of them at the same time.

    \b
    vinoqueue worker --redis-url redis://store:6379/0 --device GPU
    vinoqueue worker --model tiny=./tiny.gguf --max-batch 32 --cache-size 4
    """,
)
