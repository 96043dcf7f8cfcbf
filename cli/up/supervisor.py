"""The supervisor of ``up``: what is started in which order, restarted when it dies, and ended together."""

import asyncio
import os
import signal
import socket
import time
from typing import NoReturn

import click
from redis.exceptions import RedisError

from cli.health import reachable
from cli.options import file_variable, variable
from cli.up.children import Child, ending
from cli.up.progress import Progress
from cli.up.store import EmbeddedValkey, wait_for_answer
from shared.protocol.registry import Survey, WorkerInfo, survey
from shared.redis.client import connect
from shared.runtime.placement import beside_engine, own_cpus
from shared.runtime.processes import module_command
from shared.runtime.settings import SECRETS, ApiSettings, Settings, UpSettings, WorkerSettings
from worker.engine.devices import computes_on_cpus

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 15.0
HEALTHY_AFTER = 60.0
"""Seconds of life after which a child's death counts as the first one again."""

API_MARGIN = 3.0
"""Seconds beyond the drain time that the API has to end; the worker has them too, at the same time."""

LOOK = 0.25
"""Seconds between two looks at who is there, until all are."""

LOOK_LATER = 2.0
"""The same afterwards, beside an engine that wants every core."""


def run(settings: UpSettings) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; return the exit code: 0 after a signal.

    Raises :class:`click.ClickException` when something can't be started, or the embedded store is lost.
    """
    return asyncio.run(_Supervisor(settings).run())


class _Supervisor:
    def __init__(self, settings: UpSettings) -> None:
        if settings.require_keys and not (settings.redis_url or settings.api_keys or settings.keys_file):
            raise click.ClickException(
                "--require-keys is set, but there is no API key, and the embedded Valkey starts without any. Give keys "
                "with VINOQUEUE_API_KEYS or --keys-file. Or leave --require-keys out and run 'vinoqueue key create': "
                "the first key closes the API."
            )
        port = free_port(settings.host, settings.port)
        self._progress = Progress()
        cpus = beside_engine(own_cpus()) if computes_on_cpus(settings) else frozenset[int]()
        self._store = None if settings.redis_url else EmbeddedValkey(port, cpus)
        url = self._store.url if self._store else settings.redis_url
        self._settings = settings.model_copy(update={"port": port, "redis_url": url})
        worker, api = module_command("cli.main", "worker"), module_command("cli.main", "api")
        self._worker = Child("worker", worker, environment(self._settings, WorkerSettings))
        self._api = Child("API", api, environment(self._settings, ApiSettings), cpus=cpus)
        self._ready = False

    async def run(self) -> int:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number, stopping)
        serving = asyncio.create_task(self._serve())
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            serving.cancel()
            stopped.cancel()
            await asyncio.gather(serving, stopped, return_exceptions=True)
            await self._stop()
        return 0

    def _on_signal(self, number: signal.Signals, stopping: asyncio.Event) -> None:
        if not stopping.is_set():
            self._progress.say(f"Ending; answers in flight have {self._settings.drain:.0f} s")
            stopping.set()
        elif number == signal.SIGINT:
            # Only a person's second Ctrl-C: a second SIGTERM comes from make, which passes its own one on.
            self._progress.say("Ending at once")
            self._api.kill()
            self._worker.kill()

    async def _serve(self) -> None:
        """Start everything and keep it running, until cancelled or one of the parts can't go on."""
        if self._store:
            self._progress.say("Starting Valkey")
            await self._store.start()
        else:
            await wait_for_answer(self._settings.redis_url, patience=0)
        self._progress.say("Starting the worker and the API")
        parts = [self._keep(self._worker), self._keep(self._api), self._watch()]
        if self._store:
            parts.append(self._guard(self._store))
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, child: Child) -> NoReturn:
        """Restart ``child`` whenever it dies, with growing pauses.

        Raises :class:`click.ClickException` when it dies before everything was ready for the first time: the reason
        is then in the settings or the installation, and lies in the lines that the child printed.
        """
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            await child.start()
            how = ending(await child.wait())
            if not self._ready:
                raise click.ClickException(f"The {child.name} did not start: it ended with {how}. See its lines above.")
            if time.monotonic() - began > HEALTHY_AFTER:
                pause = FIRST_PAUSE
            self._progress.say(f"The {child.name} ended with {how}; it starts again in {pause:.1f} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _guard(self, store: EmbeddedValkey) -> NoReturn:
        """Raise :class:`click.ClickException` when the store ends: the queue and all answers went with it."""
        how = ending(await store.child.wait())
        raise click.ClickException(f"Valkey ended with {how}, and the queue with it.\n{store.last_words()}".rstrip())

    async def _watch(self) -> NoReturn:
        """Tell people what the worker's and the API's advertisements say."""
        redis = connect(self._settings.redis_url, max_connections=2)
        store = self._store.url if self._store else ""
        address = f"http://{_for_url(reachable(self._settings.host))}:{self._settings.port}"
        try:
            while True:
                try:
                    found = await survey(redis)
                except (RedisError, OSError):
                    found = Survey([], [], {})
                worker = next((one for one in found.workers if self._is_ours(one)), None)
                if worker and worker.status in ("loading", "failing"):
                    self._progress.loading(worker)
                elif worker and worker.status == "serving" and any(one.pid == self._api.pid for one in found.replicas):
                    self._ready = True
                    self._progress.serving(worker, address, store)
                await asyncio.sleep(LOOK_LATER if self._ready else LOOK)
        finally:
            await redis.aclose()

    def _is_ours(self, worker: WorkerInfo) -> bool:
        return worker.pid == self._worker.pid and worker.host == self._settings.node

    async def _stop(self) -> None:
        """End everything: first the API, while the worker still generates what it waits for; the store last."""
        drain = self._settings.drain
        api = asyncio.create_task(self._api.stop(drain + API_MARGIN))
        await asyncio.wait([api], timeout=drain)
        await asyncio.gather(api, self._worker.stop(API_MARGIN))
        if self._store:
            await self._store.stop()


def free_port(host: str, port: int) -> int:
    """The port to serve on: ``port``, or a free one for 0. Raises :class:`click.ClickException` when it is taken."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as probe:
            found: int = probe.getsockname()[1]
            return found
    except OSError as error:
        raise click.ClickException(
            f"Can't listen on {host} port {port}: {os.strerror(error.errno or 0)}. "
            "Choose another port with --port (VINOQUEUE_PORT), or another address with --host."
        ) from None


def environment(settings: Settings, kind: type[Settings]) -> dict[str, str]:
    """The variables that give a child the part of ``settings`` that ``kind`` has.

    Not flags, because a Redis URL may hold a password, and every user of a machine can read command lines.
    """
    values = {name: getattr(settings, name) for name in kind.model_fields}
    given = {variable(name): str(value) for name, value in values.items()}
    # Where a secret came from a file, the child gets its value: the two together would be an error.
    return given | {file_variable(name): "" for name in SECRETS}


def _for_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
