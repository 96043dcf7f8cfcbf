"""A fleet of real processes: a store, workers and API replicas."""

import atexit
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import redis

from shared.runtime.placement import cpus_for_others, own_cpus, run_on
from shared.runtime.processes import die_with_parent, module_command
from tests.support.eventually import PATIENCE, wait_until
from tests.support.fork_server import Fork, fork
from tests.support.store import Store

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletionChunk

SIMULATED = ("--engine", "simulated", "--model", "sim", "--max-batch", "16", "--sim-step", "0.005")
"""Options of a simulated worker. The value of ``--sim-step`` stays the last, so that tests can replace it."""


SEEING = ("--engine", "simulated", "--model", "sim=[[see images]]", "--max-batch", "16", "--sim-step", "0.005")
"""The same, for a model that reads images."""


PATIENT = 6.0
"""Seconds of a lease where no process dies: on a busy machine, a worker whose heartbeat is late by more than a usual
lease is unknown for a moment, and requests for its model are refused."""


ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}
"""Tests run at the same time, one for each CPU: with a thread for each CPU too, they take a third more of its time."""


def exact(model: str, *options: str) -> tuple[str, ...]:
    """Options of a worker with a real model, whose texts do not depend on what else is in the batch."""
    return ("--model", model, "--precision", "exact", "--plugin-config", json.dumps(ONE_THREAD), *options)


Launch = Callable[[Sequence[str], IO[bytes], dict[str, str]], subprocess.Popen[bytes] | Fork]
"""Runs a ``vinoqueue`` command with these arguments, this output and this environment."""


def execute(arguments: Sequence[str], output: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Run it as a user does."""
    return subprocess.Popen(
        module_command("cli.main", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        preexec_fn=die_with_parent,
    )


class Process:
    """A ``vinoqueue`` process; its output goes to a file, which is shown when something goes wrong."""

    def __init__(self, log: Path, *arguments: str, environment: dict[str, str], launch: Launch) -> None:
        self.log = log
        self.arguments = arguments
        with log.open("wb") as output:
            self.popen = launch(arguments, output, {**os.environ, **environment})

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.popen.send_signal(number)

    def stop(self) -> int:
        """End it with SIGTERM, killed if it does not obey; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.stopped()

    def stopped(self) -> int:
        """Wait until it has obeyed SIGTERM, and kill it if it does not; return its exit code."""
        try:
            return self.popen.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise AssertionError(f"a process ignored SIGTERM:\n{self.log.read_text()}") from None

    def kill(self) -> None:
        """End it at once."""
        self.popen.kill()
        self.popen.wait()


class Fleet:
    """One store with any number of workers and API replicas."""

    def __init__(
        self,
        folder: Path,
        *store_options: str,
        local: bool = False,
        store_server: Path | None = None,
        store_user: str = "",
        lease: float | None = None,
        launch: Launch = execute,
    ) -> None:
        """``store_options``, ``store_server`` and ``store_user`` are as in :class:`Store`. With ``local``, all connect
        to its Unix socket, and store and replicas leave the first CPU to the engine, as under ``up``. ``lease`` is in
        seconds; by default, it is as short as a user's. ``launch`` runs the commands; measurements need processes that
        share no memory."""
        self.folder = folder
        self._launch = launch
        self._lease = {} if lease is None else {"VINOQUEUE_LEASE": str(lease)}
        self._cpus = cpus_for_others(own_cpus()) if local else frozenset[int]()
        self.store = Store(folder / "store", free_port(), *store_options, server=store_server, user=store_user)
        self.store.start()
        if self.store.pid is not None:
            run_on(self._cpus, self.store.pid)
        self.url = self.store.local_url if local else self.store.url
        self.processes: list[Process] = []
        self.port = 0
        self._clients: list[openai.OpenAI] = []

    def client(self, version: str = "v1") -> "openai.OpenAI":
        """The official SDK, without its own retries; closed with the fleet at the latest. ``version``: v1 or v3."""
        import openai  # The benchmarks, which do not need it, run without the test tools.

        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.port}/{version}",
            api_key="none",
            max_retries=0,
            timeout=PATIENCE,
            http_client=openai.DefaultHttpxClient(verify=_tls()),
        )
        self._clients.append(client)
        return client

    def redis(self) -> "redis.Redis":
        """A client of the store."""
        return self.store.client()

    def start(self, *arguments: str, **environment: str) -> Process:
        """Start a ``vinoqueue`` command on this fleet's store."""
        log = self.folder / f"{len(self.processes)}-{arguments[0]}.log"
        process = Process(
            log,
            *arguments,
            environment={
                "VINOQUEUE_REDIS_URL": self.url,
                "VINOQUEUE_DRAIN": "5",
                "VINOQUEUE_DRAIN_DELAY": "0",
                # Requests outlive their last worker until the test has started another one, on a busy machine too.
                "VINOQUEUE_WORKER_GRACE": str(PATIENCE),
                # Tests read streams late, on a busy machine too.
                "VINOQUEUE_CLIENT_TIMEOUT": str(PATIENCE),
                "VINOQUEUE_FILES_DIR": str(self.folder / "files"),
                **self._lease,
                **environment,
            },
            launch=self._launch,
        )
        self.processes.append(process)
        return process

    def api(self, *arguments: str) -> Process:
        """Start an API replica; it becomes the one that :meth:`client` and :meth:`request` talk to."""
        self.port = free_port()
        process = self.start("api", "--port", str(self.port), *arguments)
        run_on(self._cpus, process.popen.pid)
        self.until(lambda: self.status("/live") == 200, "the API to answer")
        return process

    def key(self, *arguments: str) -> str:
        """Run ``vinoqueue key`` to its end, in a thread of this process; return what it prints."""
        from click.testing import CliRunner

        from cli.manage.key import key

        with ThreadPoolExecutor(1) as thread:
            result = thread.submit(CliRunner().invoke, key, [*arguments, "--redis-url", self.url]).result()
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    def command(self, *arguments: str) -> tuple[int, str]:
        """Run a ``vinoqueue`` command on this fleet's store to its end; return its exit code and what it prints."""
        process = self.start(*arguments)
        self.processes.remove(process)
        return process.popen.wait(PATIENCE), process.log.read_text()

    def worker(self, *arguments: str) -> Process:
        """Start a worker, simulated by default, and wait until it serves."""
        process = self.start("worker", *(arguments or SIMULATED))
        self._until_serving([process])
        return process

    def add_workers(self, count: int, *arguments: str) -> None:
        """Start ``count`` workers together, and wait until all serve."""
        self._until_serving([self.start("worker", *arguments) for _ in range(count)])

    def workers(self, status: str | None = None) -> list[dict[str, Any]]:
        """The registry records of live workers."""
        with self.redis() as client:
            found = [client.get(key) for key in client.scan_iter("vinoqueue:worker:*")]
        infos = [json.loads(info) for info in found if isinstance(info, bytes)]
        return [info for info in infos if status is None or info["status"] == status]

    def status(self, path: str, port: int = 0) -> int:
        """The status of a GET; 0 when nothing answers. ``port`` is that of another replica."""
        try:
            return self.request("GET", path, port=port)[0]
        except OSError:
            return 0

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: dict[str, str] | None = None,
        *,
        port: int = 0,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one HTTP request; return status, headers (lower case) and body. ``port`` is that of another replica."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE)
        try:
            if headers is None:
                headers = {"content-type": "application/json"} if body is not None else {}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until ``condition`` is true; fail with the logs when a process dies or patience ends."""
        wait_until(condition, what, details=self.logs)

    def until_counted(self) -> None:
        """Wait until the usage of all ended requests is counted."""
        with self.redis() as store:
            names = [*store.scan_iter("vinoqueue:ended:*")]
            self.until(lambda: not any(map(store.xlen, names)), "their usage to be counted")

    def _until_serving(self, workers: list[Process]) -> None:
        pids = {worker.popen.pid for worker in workers}
        self.until(lambda: pids <= {worker["pid"] for worker in self.workers("serving")}, "the workers to serve")

    def logs(self) -> str:
        """The output of all processes."""
        return "\n".join(f"--- {process.log.name}\n{process.log.read_text()}" for process in self.processes)

    def stop(self) -> None:
        """Close the clients, end every process, then the store."""
        for client in self._clients:
            client.close()
        for process in reversed(self.processes):
            process.signal(signal.SIGTERM)
        try:
            for process in self.processes:
                process.stopped()
        finally:
            self.store.kill()


def text_of(chunks: "Iterable[ChatCompletionChunk]") -> str:
    """The text of a streamed chat."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@cache
def _tls() -> ssl.SSLContext:
    """What httpx makes for each client: reading the certificates takes 50 ms of CPU time, and nobody here uses them."""
    return ssl.create_default_context()


@contextmanager
def fleet(
    folder: Path,
    *store_options: str,
    store_server: Path | None = None,
    store_user: str = "",
    lease: float | None = None,
    launch: Launch = fork,
) -> Iterator[Fleet]:
    """A fleet that is ended with the block. Its store is as in :class:`Store`."""
    running = Fleet(
        folder, *store_options, store_server=store_server, store_user=store_user, lease=lease, launch=launch
    )
    try:
        yield running
    finally:
        running.stop()


def free_port() -> int:
    """A port that nothing listens on, and that nobody else is given: not even after a server there has ended.

    The kernel keeps a bound port, and lets a server with ``SO_REUSEADDR`` listen on it.
    """
    if len(_reserved) == _RESERVED:
        _reserved.popleft().close()
    _reserved.append(reserved := socket.socket())
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port: int = reserved.getsockname()[1]
    return port


_RESERVED = 100
"""Ports that a process keeps; fleets and servers with more do not exist at once."""
_reserved: deque[socket.socket] = deque()


@atexit.register
def _release() -> None:
    for reserved in _reserved:
        reserved.close()
