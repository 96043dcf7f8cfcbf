"""compose.yaml and the pages about it, run with Docker: every command of README, deployment and tutorials in order.

``make images`` runs them and fails without an engine; ``make test`` runs them where an engine answers.
"""

import http.client
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from tests.support.dockerfile import context
from tests.support.eventually import PATIENCE, wait_until
from tests.support.fleet import free_port
from tests.support.images import copy_sources
from tests.support.paths import MODELS
from tests.support.tutorials import WITH_DOCKER, Block, all_blocks
from worker.model.local import path as source_path

DEFAULT = "SmolLM2-135M-Instruct"
QUESTION = "Name the capital of France."


@pytest.fixture(scope="module")
def engine() -> str:
    """The address at which containers of one project reach ports that another publishes."""
    found = subprocess.run(
        ["docker", "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Subnet}}"],
        check=False, capture_output=True, text=True,
    ) if shutil.which("docker") else None  # fmt: skip
    if found is None or found.returncode:
        reason = "no Docker engine answers: compose.yaml and the commands of the pages about it are not run"
        if os.environ.get("IMAGES") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    # The engine's own address is the first one. Before a network has had a container, no "Gateway" is listed.
    return str(next(ip_network(found.stdout.strip()).hosts()))


class Host:
    """A folder with what users have of the repository, and a Compose project of its own in place of a machine."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address, self.port = folder, address, free_port()
        self.proxy_port = free_port()
        self.started: list[str] = []
        """Containers outside of the project."""
        copy_sources({*context("api"), *context("worker"), "compose.yaml", "deploy", ".dockerignore"}, folder)
        (folder / "models").mkdir()
        self.configure(f"VINOQUEUE_PORT={self.port}", f"PROXY_PORT={self.proxy_port}", "VINOQUEUE_MAX_BATHC=3")

    def configure(self, *lines: str) -> None:
        """Add lines to .env."""
        with (self.folder / ".env").open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def setting(self, name: str) -> str:
        """The last value of a variable in .env."""
        return (self.folder / ".env").read_text().rpartition(f"\n{name}=")[2].partition("\n")[0]

    def sh(self, code: str) -> str:
        """Run shell commands; return what they print. Fails if one fails."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VINOQUEUE_")}
        environment["COMPOSE_PROJECT_NAME"] = self.folder.name
        done = subprocess.run(
            ["sh", "-ec", code], cwd=self.folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{code}\n{done.stdout}"
        return done.stdout

    def containers(self, service: str) -> list[str]:
        """The ids of the running containers of a service."""
        return self.sh(f"docker compose ps -q {service}").split()

    def logs(self) -> str:
        """What all containers have printed."""
        return self.sh("docker compose logs --no-color 2>&1") + self.sh("docker compose ps -a")

    def ask(
        self, content: str, *, model: str = DEFAULT, key: str = "", port: int = 0, **fields: Any
    ) -> tuple[int, str]:
        """Send a chat; return the status and the body. Returns 0 where nothing answers."""
        body = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": content}], **fields}
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE)
        headers = {"content-type": "application/json", "authorization": f"Bearer {key or 'none'}"}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def until_served(self, **fields: Any) -> None:
        """Wait until a chat is answered."""
        self.until(lambda: (found := self.ask(QUESTION, **fields))[0] == 200 and "content" in found[1], "a chat")

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until ``condition`` is true. Several workers convert and load their models at once."""
        wait_until(condition, what, details=self.logs, patience=4 * PATIENCE)

    def workers(self) -> list[dict[str, Any]]:
        """The registry records of the workers, by the documented command; a warning of it is in the line before."""
        time.sleep(3)  # the command takes as much CPU time as a second of loading
        printed = self.sh("docker compose exec -T api vinoqueue status --json").splitlines()[-1]
        found: list[dict[str, Any]] = json.loads(printed)["workers"]
        return found

    def serving(self) -> list[str]:
        """The names of the hosts of serving workers."""
        return [worker["host"] for worker in self.workers() if worker["status"] == "serving"]

    def get(self, path: str) -> str:
        """Return what the API has at ``path``."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def stream(self, during: Callable[[], object], tokens: int = 60) -> str:
        """Return the text of a stream, and call ``during`` after its first tokens. Fails unless it has its end."""
        body = {"model": DEFAULT, "max_tokens": tokens, "stream": True, "temperature": 0, "ignore_eos": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        message = json.dumps(body | {"messages": [{"role": "user", "content": "Tell a long story."}]})
        connection.request("POST", "/v1/chat/completions", message, {"content-type": "application/json"})
        answer, text, lines = connection.getresponse(), "", 0
        assert answer.status == 200, answer.read()
        for line in iter(lambda: answer.readline().decode().strip(), "data: [DONE]"):
            if line.startswith("data: "):
                chunk = json.loads(line[6:])
                assert "error" not in chunk, chunk
                text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
                lines += 1
                if lines == 10:
                    during()
        connection.close()
        return text

    def remove_started(self) -> None:
        """End the containers outside of the project, and remove them."""
        while self.started:
            subprocess.run(["docker", "rm", "-f", self.started.pop()], check=False, capture_output=True)

    def remove(self) -> None:
        """End everything, and remove it."""
        self.remove_started()
        self.sh("docker compose --profile '*' down --volumes --remove-orphans")


@pytest.fixture
def hosts(engine: str, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """The first host, and the other one."""
    made = tuple(Host(tmp_path / f"vinoqueue-test-{name}", engine) for name in ("first", "other"))
    try:
        yield made[0], made[1]
    finally:
        for host in made:
            host.remove()


def certificates(folder: Path, address: str) -> None:
    """A certificate of the store by an authority of its own. Python 3.13 demands the extensions."""
    folder.mkdir()
    made = "openssl req -newkey rsa:2048 -nodes"
    commands = f"""
    {made} -x509 -days 2 -keyout ca.key -out ca.pem -subj /CN=authority -addext keyUsage=keyCertSign
    {made} -keyout store.key -out store.csr -subj /CN=store -addext subjectAltName=IP:{address}
    openssl x509 -req -in store.csr -CA ca.pem -CAkey ca.key -days 2 -copy_extensions copy -out store.pem
    chmod 644 store.key
    """
    subprocess.run(["sh", "-ec", commands], cwd=folder, check=True, capture_output=True)


class Walk:
    """Runs the blocks of a page in order, and checks what each one has led to."""

    def __init__(self, first: Host, other: Host) -> None:
        self.first, self.other = first, other
        self.key = ""
        self.overrides: list[str] = []
        """What has been in compose.override.yaml."""

    def page(self, name: str) -> None:
        """Run all blocks of a page."""
        for block in all_blocks(name):
            if block.with_docker:
                printed = self.block(block)
                if block.language == "sh":
                    self.check(name, block.code, printed)

    def block(self, block: Block) -> str:
        """Run a block as it is written, with this test's addresses."""
        host = self.other if block.code.startswith("# on the other host") else self.first
        code = block.code.replace("10.0.0.1", self.first.address)
        if block.language == "yaml":
            self.overrides.append(code)
            (host.folder / "compose.override.yaml").write_text(code)
            return ""
        if "docker run" in code and host is self.first:  # its section needs the store's port without TLS
            (published,) = [override for override in self.overrides if ":6379" in override]
            (host.folder / "compose.override.yaml").write_text(published)
            host.sh("docker compose up -d valkey")
        if ("PASSWORD" in code and host is self.other) or "docker run" in code:
            code = re.sub(r"\bPASSWORD\b", self.first.setting("STORE_PASSWORD"), code)
        printed = host.sh(code)
        host.started += re.findall(r"^[0-9a-f]{64}$", printed, re.MULTILINE)
        return printed

    def check(self, page: str, code: str, printed: str) -> None:
        """Check what a block has led to."""
        first, other = self.first, self.other
        served: dict[str, Any] = {"model": "my-model"} if "my-model" in (first.folder / ".env").read_text() else {}
        if page == "README":
            self.of_the_first_start()
        elif "key create" in code:
            self.key = re.findall(r"^sk-vq\S+$", printed, re.MULTILINE)[0]
            first.until(lambda: first.ask(QUESTION, **served)[0] == 401, "requests without a key to be refused")
            first.until_served(key=self.key, **served)
        elif "--scale worker=3" in code:
            first.until(lambda: len(first.serving()) == 3, "three workers")
            first.until_served(key="sk-of-a-file", **served)
            assert first.ask(QUESTION, key="sk-of-nobody", **served)[0] == 401
        elif "vinoqueue status" in code:
            assert printed.count("serving") == 3
        elif "--profile proxy" in code:
            assert len(first.containers("api")) == 2
            first.until_served(key=self.key, port=first.proxy_port, **served)
        elif code.startswith("# on the other host"):
            if "rediss" in code:  # the port without TLS is closed
                other.remove_started()
                first.sh("docker compose stop worker")
            containers = {name[:12] for name in [*other.containers("worker"), *other.started]}
            first.until(lambda: containers <= {*first.serving()}, "the workers of the other host")
            first.until_served(key=self.key)
        elif "/my-model:" in code:
            name = first.started[-1][:12]
            first.until(lambda: name in first.serving(), "the worker with a folder of the host")
            first.until_served(key=self.key, **served)
            first.remove_started()
        else:
            first.until_served(key=self.key, **served)

    def of_the_first_start(self) -> None:
        """Three workers, a kill in the middle of a stream, fewer workers, and a restart of each service."""
        first = self.first
        first.until(lambda: len(first.serving()) == 3, "three workers")
        assert "the model has changed" not in first.sh("docker compose logs worker")
        status, answer = first.ask(QUESTION)
        assert (status, "Paris" in answer) == (200, True), answer
        for service in ("api", "worker"):
            assert "VINOQUEUE_MAX_BATHC is not a setting" in first.sh(f"docker compose logs {service}")
        whole = first.stream(lambda: None)
        tokens = 200
        while not re.search(r'^vinoqueue_migrations_total.*"worker_lost"} [1-9]', first.get("/metrics"), re.MULTILINE):
            # The stream may end before its worker is found: a longer one is next.
            assert first.stream(self.kill_the_busy_worker, tokens)[:20] == whole[:20]
            first.until(lambda: len(first.serving()) == 3, "the worker to come back")
            tokens *= 2
        first.stream(lambda: first.sh("docker compose up -d --scale worker=1"))
        assert len(first.containers("worker")) == 1
        for service in ("api", "worker", "valkey"):
            (container,) = first.containers(service)
            first.sh(f"docker compose stop {service}")
            ended = first.sh(f"docker inspect {container} --format '{{{{.State.ExitCode}}}}'").strip()
            assert ended == "0", f"{service}: {ended}\n{first.logs()}"
            if service == "valkey":
                assert "bye bye" in first.sh(f"docker logs {container} 2>&1")
            first.sh(f"docker compose start {service}")
            first.until_served()

    def kill_the_busy_worker(self) -> None:
        """Kill the worker that has a request, as a crash does; Docker restarts it."""
        for worker in json.loads(self.first.get("/v1/fleet"))["workers"]:
            if worker["used"]:
                self.first.sh(f"docker exec {worker['host']} sh -c 'kill -9 -1'")


def test_every_command_of_the_pages_in_order(hosts: tuple[Host, Host]) -> None:
    first, other = hosts
    certificates(first.folder / "tls", first.address)
    shutil.copy(first.folder / "tls" / "ca.pem", other.folder / "models")
    shutil.copy(source_path("default"), first.folder / "models" / "my-model.gguf")
    shutil.copytree(MODELS / "qwen2-byte-level-bpe", first.folder / "my-model")
    (first.folder / "api_keys.txt").write_text("sk-of-a-file\n")
    walk = Walk(first, other)
    for page in WITH_DOCKER:
        walk.page(page)


def test_an_image_runs_as_any_user(hosts: tuple[Host, Host]) -> None:
    first, _ = hosts
    (first.folder / "compose.override.yaml").write_text(
        'services:\n  api: {user: "12345"}\n  worker: {user: "12345", read_only: true, tmpfs: [/tmp]}\n'
    )
    first.sh("docker compose up --build -d")
    first.until_served()
    first.sh("docker compose run --rm api key create --name me")
    assert "cli uid 12345@" in first.sh("docker compose run --rm api audit")


def test_a_limit_that_is_too_low_is_named(hosts: tuple[Host, Host]) -> None:
    first, _ = hosts
    first.configure("WORKER_MEMORY=300m")
    first.sh("docker compose up --build -d")
    first.until(lambda: "may use 300 MB" in first.sh("docker compose logs worker"), "the limit to be named")
