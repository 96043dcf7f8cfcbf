"""The access rules of docs/security.md: the service runs by them, a restart loses nothing, and no role can do more than
it needs."""

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner, Result
from openai.types.chat import ChatCompletionMessageParam

from cli.main import main
from tests.support.batches import chat_line, ended, results, submit
from tests.support.fleet import SEEING, SIMULATED, Fleet, Process, fleet, free_port
from tests.support.paths import ROOT
from tests.support.pictures import data_url, picture, png
from tests.support.redis_types import command
from tests.support.store import Store
from tests.support.store_rules import PASSWORDS, TESTER, rules_file, url
from tests.support.store_servers import SERVERS, store_server

LONG = "hello " * 1000
IMAGE = {"type": "image_url", "image_url": {"url": data_url(png(picture(1).pixels()))}}
ASK = json.dumps(
    {"model": "sim", "messages": [{"role": "user", "content": LONG}], "max_tokens": 30, "store": True, "n": 2}
)


STREAMS = 8

OF_A_MODEL = ("queue", "inflight", "claims", "sizes", "load", "fair-queue", "reserved", "reaped", "moves")
"""The workers' keys that have a model's name (docs/security.md, "What a password allows")."""


@pytest.fixture
def ruled_fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A store with the rules and an append-only file, and nothing else. A parameter names its server."""
    options = ("--appendonly", "yes", "--aclfile", rules_file(tmp_path))
    server = store_server(getattr(request, "param", SERVERS[-1]))
    with fleet(tmp_path, *options, store_server=server, store_user=TESTER) as running:
        yield running


@pytest.fixture(scope="module", params=SERVERS)
def rules(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with the rules."""
    folder = tmp_path_factory.mktemp("rules")
    options = ("--aclfile", rules_file(folder))
    store = Store(folder / "store", free_port(), *options, server=store_server(request.param), user=TESTER)
    store.start()
    yield store
    store.kill()


@pytest.mark.parametrize("ruled_fleet", SERVERS, indirect=True)
def test_the_service_runs_by_the_rules(ruled_fleet: Fleet) -> None:
    fleet = ruled_fleet
    options = ["--scope", "admin", "--requests-per-minute", "100", "--concurrency", "9", "--tokens-per-day", "9999"]
    made = run(fleet.store, "admin", "key", "create", *options)
    headers = {"content-type": "application/json", "authorization": f"Bearer {made.stdout.strip()}"}
    worker = url(fleet.store, "worker")
    fleet.worker(*SEEING, "--redis-url", worker)
    fleet.api("--redis-url", url(fleet.store, "api"))
    fleet.until(lambda: fleet.status("/ready") == 200, "readiness")
    status, _, answer = fleet.request("POST", "/v1/chat/completions", ASK, headers)
    assert status == 200, answer
    view = json.loads(fleet.request("GET", "/v1/fleet", None, headers)[2])
    assert (view["store"], len(view["workers"]), len(view["models"])) == ("up", 1, 1)
    stored = json.loads(answer)["id"]
    assert fleet.request("GET", f"/v1/chat/completions/{stored}", None, headers)[0] == 200
    assert fleet.request("DELETE", f"/v1/chat/completions/{stored}", None, headers)[0] == 200

    look = json.dumps({"model": "sim", "messages": [{"role": "user", "content": [IMAGE]}], "max_tokens": 3})
    status, _, answer = fleet.request("POST", "/v1/chat/completions", look, headers)
    assert status == 200, answer
    with fleet.redis() as store:
        assert store.keys("vinoqueue:sizes*") == [], "the worker has counted the image as ended"

    form = b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    form += b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--x--\r\n'
    upload = headers | {"content-type": "multipart/form-data; boundary=x"}
    status, _, answer = fleet.request("POST", "/v1/files", form, upload)
    assert status == 200, answer
    assert fleet.request("GET", "/v1/files", None, headers)[0] == 200
    batch = {"input_file_id": json.loads(answer)["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    status, _, batched = fleet.request("POST", "/v1/batches", json.dumps(batch), headers)
    assert status == 200, batched
    path = f"/v1/batches/{json.loads(batched)['id']}"
    fleet.until(
        lambda: json.loads(fleet.request("GET", path, None, headers)[2])["status"] == "failed", "the batch to be read"
    )
    assert fleet.request("GET", "/v1/batches", None, headers)[0] == 200
    assert fleet.request("DELETE", f"/v1/files/{json.loads(answer)['id']}", None, headers)[0] == 200

    # A worker dies in the middle: reaping, resuming and reading journals are allowed too.
    fleet.worker(*SIMULATED, "--redis-url", worker)
    body = {"model": "sim", "messages": [{"role": "user", "content": "[[crash at 10]]"}], "max_tokens": 40}
    assert fleet.request("POST", "/v1/chat/completions", json.dumps(body), headers)[0] == 200
    fleet.processes[0].kill()
    assert fleet.request("POST", "/v1/chat/completions", json.dumps(body), headers)[0] == 200

    store = fleet.redis()
    corrupt = "corrupt"
    store.set(f"arq:job:{corrupt}", b"?")
    store.zadd("vinoqueue:queue:sim", {corrupt: 1})
    fleet.until(lambda: store.llen("vinoqueue:dead-letters:sim") == 1, "the corrupt job to become a dead letter")

    for role in ("admin", "api"):
        looked = run(fleet.store, role, "status", "--json")
        assert json.loads(looked.stdout)["replicas"]
        assert looked.stderr == ""
    assert command(store, "ACL", "LOG") == [], fleet.logs()
    assert "'default'" not in fleet.logs()


def test_a_restart_loses_nothing(ruled_fleet: Fleet) -> None:
    fleet = ruled_fleet
    fleet.worker(*SIMULATED, "--redis-url", url(fleet.store, "worker"))
    fleet.api("--redis-url", url(fleet.store, "api"))
    fleet.until(lambda: fleet.status("/ready") == 200, "readiness")
    client = fleet.client()
    hello: list[ChatCompletionMessageParam] = [{"role": "user", "content": "[[tokens 2000]]"}]

    def read(started: threading.Event) -> str:
        text = ""
        chunks = client.chat.completions.create(model="sim", messages=hello, max_tokens=600, temperature=0, stream=True)
        for chunk in chunks:
            text += chunk.choices[0].delta.content or ""
            started.set()
        return text

    expected = read(threading.Event())
    stored = client.chat.completions.create(model="sim", messages=hello, max_tokens=3, store=True)
    with ThreadPoolExecutor(STREAMS) as readers:
        running = [threading.Event() for _ in range(STREAMS)]
        streams = [readers.submit(read, started) for started in running]
        batch = submit(client, [chat_line(f"line-{number}") for number in range(40)])
        fleet.until(lambda: all(started.is_set() for started in running), "all streams to run")
        fleet.store.stop()
        fleet.store.start()
        assert [stream.result() for stream in streams] == [expected] * STREAMS, fleet.logs()
    assert client.chat.completions.retrieve(stored.id).choices == stored.choices
    batch = ended(client, batch, fleet.logs)
    assert (batch.status, len(results(client, batch.output_file_id))) == ("completed", 40)


def test_passwords_are_changed_without_losing_a_request(ruled_fleet: Fleet) -> None:
    fleet = ruled_fleet
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    commands = re.findall(r"^ +(ACL S.*)$", page.partition("<!-- rotation")[2].partition("\n## ")[0], re.MULTILINE)
    added, removed = commands[:3], commands[3:]
    assert [line.split()[1] for line in commands] == ["SETUSER", "SETUSER", "SAVE"] * 2

    def start(role: str, prefix: str, *arguments: str) -> Process:
        login = f"vinoqueue-{role}:{prefix}{PASSWORDS[role]}"
        return fleet.start(*arguments, VINOQUEUE_REDIS_URL=f"redis://{login}@127.0.0.1:{fleet.store.port}/0")

    def replica(prefix: str) -> Process:
        port = free_port()
        started = start("api", prefix, "api", "--port", str(port))
        fleet.until(lambda: fleet.status("/ready", port) == 200, "the replica to serve")
        fleet.port = port
        return started

    old = [start("worker", "", "worker", *SIMULATED), replica("")]
    statuses: list[int] = []
    stopping = threading.Event()

    def ask() -> None:
        while not stopping.is_set():
            statuses.append(fleet.request("POST", "/v1/chat/completions", ASK)[0])

    with ThreadPoolExecutor(4) as pool, fleet.redis() as operator:
        clients = [pool.submit(ask) for _ in range(4)]
        try:
            for line in added:
                command(operator, *line.split())
            old += [start("worker", "NEW_", "worker", *SIMULATED)]
            fleet.until(lambda: len(fleet.workers("serving")) == 2, "the new worker to serve")
            old[0].stop()
            replica("NEW_")
            # A client that has read the old port may still connect to it.
            seen = len(statuses)
            fleet.until(lambda: len(statuses) > seen + 8, "the clients to use the new replica")
            old[1].stop()
            for line in removed:
                command(operator, *line.split())
            seen = len(statuses)
            fleet.until(lambda: len(statuses) > seen + 8, "requests with the new passwords only")
        finally:
            stopping.set()
        for client in clients:
            client.result()
    assert {*statuses} == {200}
    for role in ("api", "worker"):
        with redis.Redis.from_url(url(fleet.store, role)) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


@pytest.mark.parametrize(
    ("default", "role_rules", "warning"),
    [
        ("off", "+ping", "its user 'default' may not write"),
        ("off ~* &* +@read", "+ping", "its user 'default' may not write"),
        ("off ~* &* +@all", "-acl|dryrun", "may not check the store's rules"),
    ],
)
def test_rules_that_lose_data_are_reported(tmp_path: Path, default: str, role_rules: str, warning: str) -> None:
    with fleet(tmp_path, "--aclfile", rules_file(tmp_path, default), store_user=TESTER) as running:
        for role in PASSWORDS:
            command(running.redis(), "ACL", "SETUSER", f"vinoqueue-{role}", role_rules)
        worker = running.worker(*SIMULATED, "--redis-url", url(running.store, "worker"))
        api = running.api("--redis-url", url(running.store, "api"))
        for process in (worker, api):
            running.until(lambda process=process: warning in process.log.read_text(), "the warning")  # type: ignore[misc]
        assert warning in run(running.store, "admin", "status").stderr


def run(store: Store, role: str, *arguments: str) -> Result:
    """Run a command of ``vinoqueue`` as a user of the store."""
    return CliRunner().invoke(main, [*arguments, "--redis-url", url(store, role)])


@pytest.mark.parametrize(("role", "command"), [("worker", ("status",)), ("api", ("key", "create"))])
def test_a_command_without_the_right_says_so(rules: Store, role: str, command: tuple[str, ...]) -> None:
    done = run(rules, role, *command)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: The store refuses this: "), done.stderr
    assert "the user in --redis-url" in done.stderr


@pytest.mark.parametrize(
    ("role", "command"),
    [
        ("api", ("HSET", "vinoqueue:keys", "key-1", "{}")),
        ("api", ("HSET", "vinoqueue:teams", "team-1", "{}")),
        ("api", ("SET", "vinoqueue:worker:w1", "{}")),
        ("api", ("SET", "other:service", "1")),
        ("worker", ("HGETALL", "vinoqueue:keys")),
        ("worker", ("SET", "vinoqueue:model-command:model", "{}")),
        ("worker", ("HGETALL", "vinoqueue:buckets:key-1")),
        ("worker", ("ZRANGE", "vinoqueue:stored-index:key-1", "0", "-1")),
        ("worker", ("HGETALL", "vinoqueue:stored:key-1:resp_1")),
        ("worker", ("PUBLISH", "other", "x")),
        ("worker", ("HGETALL", "vinoqueue:batch:1")),
        ("worker", ("SET", "vinoqueue:replica:api-1", "{}")),
        ("worker", ("PSUBSCRIBE", "vinoqueue:to-*")),
        *((role, command) for role in ("api", "worker") for command in (("SCAN", "0"), ("SCRIPT", "FLUSH"))),
        *((role, command) for role in PASSWORDS for command in (("FUNCTION", "FLUSH"), ("EVAL", "return 1", "0"))),
        *((role, command) for role in PASSWORDS for command in (("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"))),
        *(
            (role, command)
            for role in PASSWORDS
            for command in (("ACL", "LIST"), ("ACL", "GETUSER", "default"), ("SHUTDOWN",), ("SAVE",))
        ),
    ],
)
def test_no_role_can_do_more(rules: Store, role: str, command: tuple[str, ...]) -> None:
    with (
        redis.Redis.from_url(url(rules, role)) as client,
        pytest.raises(redis.ResponseError, match=r"permission|ACL|can't access"),
    ):
        client.execute_command(*command)


def test_replicas_store_commands_that_nodes_read(rules: Store) -> None:
    with redis.Redis.from_url(url(rules, "api")) as api, redis.Redis.from_url(url(rules, "worker")) as node:
        command(api, "SET", "vinoqueue:model-command:model", "{}", "EX", "9")
        assert command(node, "MGET", "vinoqueue:model-command:model") == [b"{}"]
        command(node, "SET", "vinoqueue:node:n", "{}")
        assert command(api, "MGET", "vinoqueue:node:n") == [b"{}"]


def test_a_script_has_no_more_rights_than_its_user(rules: Store) -> None:
    with redis.Redis.from_url(url(rules, "worker")) as client:
        digest = command(client, "SCRIPT", "LOAD", "return redis.call('HGETALL', 'vinoqueue:keys')")
        with pytest.raises(redis.ResponseError, match=r"permission|can't access"):
            command(client, "EVALSHA", digest.decode(), "0")


def test_a_worker_of_one_model_runs_by_narrower_rules(tmp_path: Path) -> None:
    """The section "What a password allows" names the patterns in which the model's name replaces the star."""
    file = Path(rules_file(tmp_path))
    rules = file.read_text(encoding="utf-8").splitlines()
    (worker,) = (rule for rule in rules if rule.startswith("user vinoqueue-worker"))
    narrower = worker
    for name in OF_A_MODEL:
        assert f" ~vinoqueue:{name}:* " in narrower
        narrower = narrower.replace(f" ~vinoqueue:{name}:* ", f" ~vinoqueue:{name}:sim ")
    file.write_text("\n".join([*(narrower if rule is worker else rule for rule in rules), ""]), encoding="utf-8")
    with fleet(tmp_path, "--aclfile", str(file), store_user=TESTER) as running:
        running.worker(*SIMULATED, "--redis-url", url(running.store, "worker"))
        running.api("--redis-url", url(running.store, "api"))
        running.until(lambda: running.status("/ready") == 200, "readiness")
        status, _, answer = running.request("POST", "/v1/chat/completions", ASK)
        assert status == 200, answer
        assert command(running.redis(), "ACL", "LOG") == [], running.logs()
        with redis.Redis.from_url(url(running.store, "worker")) as client:
            for name in OF_A_MODEL:
                with pytest.raises(redis.exceptions.NoPermissionError):
                    command(client, "DEL", f"vinoqueue:{name}:other")


def test_nobody_logs_in_without_a_password(rules: Store) -> None:
    with redis.Redis(port=rules.port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
