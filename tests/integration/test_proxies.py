"""Replicas behind a real proxy, restarted one after the other under load: no request fails."""

import json
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import openai
import pytest

from shared.runtime.processes import die_with_parent
from tests.support.eventually import PATIENCE
from tests.support.fleet import PATIENT, Fleet, Process, fleet, free_port, text_of

FOLDER = Path(__file__).parents[2] / "deploy" / "proxy"
PROXIES = {
    "nginx.conf": ("nginx", "-e", "/dev/stderr", "-g", "daemon off;", "-c"),
    "nginx-hosts.conf": ("nginx", "-e", "/dev/stderr", "-g", "daemon off;", "-c"),
    "haproxy.cfg": ("haproxy", "-db", "-f"),
    "Caddyfile": ("caddy", "run", "--adapter", "caddyfile", "--config"),
}
REQUESTS = 200
CLIENTS = 4
REPLICAS = 2
BODY = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4})


def configuration(name: str, folder: Path, port: int, replicas: list[int]) -> Path:
    """Write the example ``name`` for a proxy that listens on ``port``; return the file."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    text = text.replace("8080", f"127.0.0.1:{port}" if name.startswith("nginx") else str(port))
    text = text.replace("/tmp/", f"{folder}/")
    if name == "nginx.conf":
        # Instead of Docker's DNS, which returns the addresses of all replicas. nginx remembers no failures of them.
        servers = "".join(f"server 127.0.0.1:{replica} max_fails=0; " for replica in replicas)
        text = text.replace("http {", f"http {{ upstream replicas {{ {servers} }}", 1).replace("api:8000;", "replicas;")
    else:
        for number, replica in enumerate(replicas, 1):
            text = text.replace(f"10.0.0.{number}:8000", f"127.0.0.1:{replica}")
        assert "10.0.0" not in text
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


class Proxied:
    """A fleet with replicas on fixed ports behind a proxy, to which the fleet's clients talk."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.worker = fleet.worker("--engine", "simulated", "--model", "sim", "--max-batch", "32", "--sim-step", "0.02")
        self.ports = [free_port() for _ in range(REPLICAS)]
        self.processes = [self.start(port) for port in self.ports]

    def start(self, port: int) -> Process:
        """Start the replica on ``port``, and wait until it is ready."""
        process = self.fleet.start("api", "--port", str(port), "--drain", str(PATIENCE), "--drain-delay", "4")
        self.fleet.until(lambda: self.fleet.status("/ready", port) == 200, "the replica to be ready")
        return process

    def restart(self, number: int) -> None:
        """Restart a replica under load as an operator does: until the proxy sends requests to it."""
        self.processes[number].signal(signal.SIGTERM)
        assert self.processes[number].popen.wait(PATIENCE) == 0, self.fleet.logs()
        port = self.ports[number]
        self.processes[number] = self.start(port)

        def served() -> bool:
            page = self.fleet.request("GET", "/metrics", port=port)[2].decode()
            return re.search(r"^vinoqueue_requests_total{.*} [1-9]", page, re.MULTILINE) is not None

        self.fleet.until(served, "the proxy to send requests to the replica")


@pytest.fixture(scope="module", params=PROXIES)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    program, *arguments = PROXIES[request.param]
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}: apt-get install {program}")
    with fleet(tmp_path_factory.mktemp("fleet"), lease=PATIENT) as running:
        yield from behind(request.param, [program, *arguments], Proxied(running), tmp_path_factory.mktemp("proxy"))


def behind(name: str, command: list[str], running: Proxied, folder: Path) -> Iterator[Proxied]:
    """Yield the fleet while a proxy with the example ``name`` is in front of it."""
    running.fleet.port = free_port()
    file = configuration(name, folder, running.fleet.port, running.ports)
    with (folder / "log").open("wb") as log:
        proxy = subprocess.Popen([*command, str(file)], stdout=log, stderr=log, preexec_fn=die_with_parent)
    try:

        def ready() -> bool:
            assert proxy.poll() is None, (folder / "log").read_text()
            return running.fleet.status("/ready") == 200

        running.fleet.until(ready, "the proxy to find the replicas")
        yield running
    finally:
        proxy.terminate()
        proxy.wait(PATIENCE)


def test_no_request_fails_when_replicas_restart(proxied: Proxied) -> None:
    running = proxied.fleet
    client: openai.OpenAI = running.client()
    restarted = threading.Event()
    statuses: list[int | str] = []

    def long() -> str:
        chunks = client.chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": "[[tokens 200]]"}],
            max_tokens=200,
            temperature=0,
            stream=True,
        )
        return text_of(iter(chunks))

    def load() -> None:
        while not restarted.is_set() or len(statuses) < REQUESTS:
            try:
                status, _, body = running.request("POST", "/v1/chat/completions", BODY)
            except OSError as error:
                statuses.append(repr(error))
            else:
                statuses.append(status if status == 200 else f"{status} {body.decode()}")
            time.sleep(0.05)

    with ThreadPoolExecutor(CLIENTS + 2 * REPLICAS) as clients:
        clients_of_load = [clients.submit(load) for _ in range(CLIENTS)]
        try:
            for number in range(REPLICAS):
                streams = [clients.submit(long) for _ in range(2 * REPLICAS)]
                running.until(lambda: len(statuses) > 5, "load")
                proxied.restart(number)
                assert len({stream.result() for stream in streams}) == 1
        finally:
            restarted.set()
        for one in clients_of_load:
            one.result()
    assert len(statuses) >= REQUESTS
    assert Counter(statuses) == {200: len(statuses)}
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": key}
    assert running.request("GET", "/v1/responses", headers=upgrade)[0] == 426, "an upgrade reaches the API"


def test_replicas_without_workers_still_answer(proxied: Proxied) -> None:
    """A proxy that took them out would refuse connections, or answer without ``Retry-After``.

    Comes last: it ends the worker.
    """
    running = proxied.fleet
    assert proxied.worker.stop() == 0
    for port in proxied.ports:
        running.until(partial(lambda port: running.status("/ready", port) == 503, port), "no worker to serve")
    for _ in range(60):
        status, headers, _ = running.request("POST", "/v1/chat/completions", BODY)
        assert (status, "retry-after" in headers) == (503, True)
        assert running.status("/v1/models") == 200
        time.sleep(0.1)  # longer in all than the proxies need for their checks
