"""The supervisor of ``vinoqueue up``: starts, restarts and stops the store, worker and API processes."""

import asyncio
import os
import signal
import time
from typing import NoReturn

import click
from redis.exceptions import RedisError

from api.http.listener import bind
from cli.monitor.health import reachable
from cli.up.progress import StartProgress
from cli.up.store import EmbeddedValkey, wait_for_store
from shared.protocol.registry import RegistrySnapshot, WorkerInfo, read_registry
from shared.redis.client import connect
from shared.runtime.children import Child
from shared.runtime.event_loop import on_signal
from shared.runtime.placement import cpus_for_others, own_cpus
from shared.runtime.processes import exit_description, module_command
from shared.runtime.settings import ApiSettings, NodeSettings, UpSettings, WorkerSettings, environment
from shared.runtime.tasks import cancel_all
from shared.runtime.ticks import Backoff
from worker.engine.backends import computes_on_cpus

_BACKOFF = (0.5, 15.0)
"""First and longest pause in seconds before a child is restarted."""

API_MARGIN = 3.0
"""Seconds that the API and the worker have to exit after the drain time, concurrently."""

POLL_INTERVAL = 0.25
"""Polling interval of the registry in seconds until the service is ready."""

IDLE_POLL_INTERVAL = 2.0
"""Polling interval in seconds afterwards, longer to leave the CPU to the engine."""


def run(settings: UpSettings) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; return exit code 0.

    Raises :class:`click.ClickException` if a process can't be started, or the embedded store exits.
    """
    with StartProgress() as progress:
        return asyncio.run(_Supervisor(settings, progress).run())


class _Supervisor:
    def __init__(self, settings: UpSettings, progress: StartProgress) -> None:
        if settings.require_keys and not (settings.redis_url or settings.api_keys or settings.keys_file):
            raise click.ClickException(
                "--require-keys is set, but there is no API key, and the embedded Valkey starts without any. Give keys "
                "with VINOQUEUE_API_KEYS or --keys-file. Or leave --require-keys out and run 'vinoqueue key create': "
                "the first key closes the API."
            )
        port = free_port(settings.host, settings.port)
        self._progress = progress
        cpus = cpus_for_others(own_cpus()) if computes_on_cpus(settings) else frozenset[int]()
        self._store = None if settings.redis_url else EmbeddedValkey(port, cpus)
        url = self._store.url if self._store else settings.redis_url
        # Files are useless without the store that has their records.
        folder = settings.files_dir or (str(self._store.files_folder) if self._store else "")
        self._settings = settings.model_copy(update={"port": port, "redis_url": url, "files_dir": folder})
        name, kind = ("node", NodeSettings) if settings.models else ("worker", WorkerSettings)
        api = module_command("cli.main", "api")
        self._worker = Child(name, module_command("cli.main", name), environment(self._settings, kind))
        self._api = Child("API", api, environment(self._settings, ApiSettings), cpus=cpus)
        self._ready = False

    async def run(self) -> int:
        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            on_signal(number, self._on_signal, number, stopping)
        serving = asyncio.create_task(self._serve())
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            await cancel_all([serving, stopped])
            await self._stop()
        return 0

    def _on_signal(self, number: signal.Signals, stopping: asyncio.Event) -> None:
        if not stopping.is_set():
            self._progress.say(f"Stopping; requests in flight have {self._settings.drain:.0f} s to finish")
            stopping.set()
        elif number == signal.SIGINT:
            # Only a second Ctrl-C: make forwards its own SIGTERM, so a second SIGTERM is not deliberate.
            self._progress.say("Stopping immediately")
            self._api.kill()
            self._worker.kill()

    async def _serve(self) -> None:
        """Start all processes and keep them running, until cancelled or one fails permanently."""
        if self._store is None:
            await wait_for_store(self._settings.redis_url, patience=0)
        self._progress.starting("the worker and the API")
        parts = [self._keep(self._worker), self._keep(self._api), self._watch()]
        if self._store:
            parts.insert(0, self._guard(self._store))  # it answers before the others have imported their code
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_all(tasks)

    async def _keep(self, child: Child) -> NoReturn:
        """Run ``child``, and restart it with exponential backoff whenever it exits.

        Raises :class:`click.ClickException` if it exits before the service was ready for the first time. The cause is
        then in the settings or the installation, and the child has printed it.
        """
        backoff = Backoff(*_BACKOFF)
        while True:
            started = time.monotonic()
            await child.start()
            how = exit_description(await child.wait())
            if not self._ready:
                raise click.ClickException(f"The {child.name} did not start: it {how}. See its lines above.")
            pause = backoff.pause(time.monotonic() - started)
            self._progress.say(f"The {child.name} {how}; it starts again in {pause:.1f} s")
            await asyncio.sleep(pause)

    async def _guard(self, store: EmbeddedValkey) -> NoReturn:
        """Start the store. Raise :class:`click.ClickException` when it exits, because the queue and all journals are
        lost."""
        await store.start()
        how = exit_description(await store.child.wait())
        raise click.ClickException(f"Valkey {how}, and the queue is lost.\n{store.last_log_lines()}".rstrip())

    async def _watch(self) -> NoReturn:
        """Poll the registry and print the progress of the worker and the API."""
        redis = connect(self._settings.redis_url)
        store = self._store.url if self._store else ""
        address = f"http://{_for_url(reachable(self._settings.host))}:{self._settings.port}"
        try:
            while True:
                try:
                    found = await read_registry(redis)
                except (RedisError, OSError):
                    found = RegistrySnapshot([], [], [], {})
                if self._settings.models:
                    self._watch_node(found, address, store)
                for record in found.workers:
                    if record.host == self._settings.node:
                        self._progress.devices(record)
                worker = next((record for record in found.workers if self._is_ours(record)), None)
                if worker and worker.status in ("loading", "failing"):
                    self._progress.loading(worker)
                elif (
                    worker
                    and worker.status == "serving"
                    and any(replica.pid == self._api.pid for replica in found.replicas)
                ):
                    self._ready = True
                    models = {worker.model: worker.kinds}
                    self._progress.serving(worker.pid, models, address, store, web=self._settings.web)
                await asyncio.sleep(IDLE_POLL_INTERVAL if self._ready else POLL_INTERVAL)
        finally:
            await redis.aclose()

    def _watch_node(self, found: RegistrySnapshot, address: str, store: str) -> None:
        """Print that the node's models are served, once its record and that of the replica are there."""
        ours = next((node for node in found.nodes if node.pid == self._worker.pid), None)
        if ours and any(replica.pid == self._api.pid for replica in found.replicas):
            self._ready = True
            models = {model.name: model.kinds for model in ours.models}
            self._progress.serving(ours.pid, models, address, store, web=self._settings.web)

    def _is_ours(self, worker: WorkerInfo) -> bool:
        return worker.pid == self._worker.pid and worker.host == self._settings.node

    async def _stop(self) -> None:
        """Stop all processes: the API drains first while the worker still generates, and the store stops last."""
        drain = self._settings.drain_delay + self._settings.drain
        api = asyncio.create_task(self._api.stop(drain + API_MARGIN))
        await asyncio.wait([api], timeout=drain)
        await asyncio.gather(api, self._worker.stop(API_MARGIN))
        if self._store:
            await self._store.stop()


def free_port(host: str, port: int) -> int:
    """Return ``port``, or a free port if it is 0. Raises :class:`click.ClickException` if the port is taken."""
    try:
        with bind(host, port) as probe:
            found: int = probe.getsockname()[1]
            return found
    except OSError as error:
        raise click.ClickException(
            f"Can't listen on {host} port {port}: {os.strerror(error.errno or 0)}. "
            "Choose another port with --port (VINOQUEUE_PORT), or another address with --host."
        ) from None


def _for_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
