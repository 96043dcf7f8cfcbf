"""Console output of ``vinoqueue up``."""

import json
import shlex
import sys
import time
from collections.abc import Collection, Mapping

from cli.base.instances import own_command
from cli.base.output import echo
from cli.base.progress import Stages
from shared.protocol.registry import EMBED, FINDING_FILES, RERANK, WorkerInfo
from shared.runtime.logs import escaped


class StartProgress:
    """Prints status messages and suppresses repeated ones. A context manager."""

    def __init__(self) -> None:
        self._stages = Stages(sys.stdout)
        self._started = time.monotonic()
        self._stage: tuple[int, str] | None = None
        self._serving: int | None = None
        self._devices_told = False

    def __enter__(self) -> "StartProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self._stages.end()

    def say(self, text: str) -> None:
        self._stages.end()
        echo(escaped(text))

    def starting(self, what: str) -> None:
        """Show that ``what`` starts, until the next message."""
        self._stages.begin(f"Starting {what}")

    def loading(self, worker: WorkerInfo) -> None:
        """Print the loading stage of a worker if it has changed."""
        # The worker shows the progress of a download itself.
        detail = FINDING_FILES if worker.detail.startswith(FINDING_FILES) else worker.detail
        stage = (worker.pid, detail or worker.status)
        if stage == self._stage:
            return
        self._stage = stage
        text = escaped(f"Loading {worker.model} on {worker.device}: {stage[1]}")
        if worker.status == "failing":
            self.say(text)
        else:
            self._stages.begin(text, silent=stage[1] != FINDING_FILES)

    def devices(self, worker: WorkerInfo) -> None:
        """Say once which devices the host of ``worker`` has, if it has several, and which one is used."""
        if self._devices_told or not worker.devices:
            return
        self._devices_told = True
        others = [name for name in worker.devices if name.partition(".")[0] != worker.device.partition(".")[0]]
        if others:
            self.say(
                f"Devices: {', '.join(worker.devices)}. The model runs on {worker.device}; "
                f"to use another: --device {others[0]}"
            )

    def serving(self, pid: int, models: Mapping[str, Collection[str]], address: str, store: str, *, web: bool) -> None:
        """Print that process ``pid`` serves at ``address``: first with an example, in one line after a restart.

        ``models`` are names with their kinds. ``web`` is whether the web page is served. ``store`` is the URL of the
        embedded Valkey, or empty if the store is external.
        """
        if pid == self._serving:
            return
        self._stages.end()
        first = self._serving is None
        self._serving = pid
        model = escaped(", ".join(models))
        if not first:
            echo(f"{model} is served again.")
            return
        seconds = time.monotonic() - self._started
        echo(f"\nVinoqueue serves {model} at {address}/v1 (ready after {seconds:.1f} s; Ctrl-C ends it)")
        if web:
            echo(f"Chat and fleet view: {address}/")
        echo(f"\n  {example(address, *next(iter(models.items())))}\n")
        if store:
            echo(f"In another terminal: {own_command('status', '--redis-url', store)}")


def example(address: str, model: str, kinds: Collection[str]) -> str:
    """Return a curl command that streams a chat completion from the service, or uses what else the model does."""
    question = "Name the capital of France."
    path = "embeddings"
    body: dict[str, object] = {"model": model, "input": question}
    if RERANK in kinds:
        path = "rerank"
        body = {"model": model, "query": question, "documents": ["It is Paris.", "It rains."]}
    elif EMBED not in kinds:
        path = "chat/completions"
        messages = [{"role": "user", "content": question}]
        body = {"model": model, "stream": True, "temperature": 0, "messages": messages}
    parts = ["curl", "-N", f"{address}/v1/{path}", "-H", "Content-Type: application/json"]
    return shlex.join([*parts, "-d", json.dumps(body)])
