"""What ``up`` tells people while it starts, and once it serves."""

import json
import shlex
import time

import click

from cli.instances import own_command
from shared.protocol.registry import WorkerInfo


class Progress:
    """Prints lines for people, and says nothing twice."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._stage: tuple[int, str] | None = None
        self._serving: int | None = None

    def say(self, text: str) -> None:
        """Print one line."""
        click.echo(text)

    def loading(self, worker: WorkerInfo) -> None:
        """Tell the stage of a worker that does not serve yet, where it is a new one."""
        stage = (worker.pid, worker.detail or worker.status)
        if stage == self._stage:
            return
        self._stage = stage
        where = worker.device if worker.engine == "openvino" else f"the {worker.engine} engine"
        click.echo(f"Loading {worker.model} on {where}: {stage[1]}")

    def serving(self, worker: WorkerInfo, address: str, store: str) -> None:
        """Tell that ``worker`` serves at ``address``: at length the first time, in a line after a restart.

        ``store`` is the URL of the embedded Valkey, or empty where people know the store's address themselves.
        """
        if worker.pid == self._serving:
            return
        first = self._serving is None
        self._serving = worker.pid
        if not first:
            click.echo(f"{worker.model} is served again.")
            return
        seconds = time.monotonic() - self._started
        click.echo(f"\nVinoqueue serves {worker.model} at {address}/v1 (ready after {seconds:.1f} s; Ctrl-C ends it)")
        click.echo(f"\n  {example(address, worker.model)}\n")
        if store:
            click.echo(f"In another terminal: {own_command('status', '--redis-url', store)}")


def example(address: str, model: str) -> str:
    """A command line that streams an answer from the service."""
    body = {
        "model": model,
        "stream": True,
        "temperature": 0,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    }
    parts = ["curl", "-N", f"{address}/v1/chat/completions", "-H", "Content-Type: application/json"]
    return shlex.join([*parts, "-d", json.dumps(body)])
