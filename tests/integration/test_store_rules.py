"""The access rules of docs/security.md: the service runs by them, and no role can do more than it needs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.support.fleet import SIMULATED, Fleet
from tests.support.redis_types import command

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
PASSWORDS = {"api": "API_PASSWORD", "worker": "WORKER_PASSWORD", "admin": "ADMIN_PASSWORD"}
LONG = "hello " * 1000
ASK = json.dumps(
    {"model": "sim", "messages": [{"role": "user", "content": LONG}], "max_tokens": 30, "store": True, "n": 2}
)


def set_rules(fleet: Fleet) -> None:
    found = re.search(r"<!-- acl.*?```\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    with fleet.redis() as store:
        for line in found[1].splitlines():
            _, name, *rules = line.split()
            # The test itself goes on as the default user.
            if name != "default":
                store.execute_command("ACL", "SETUSER", name, "reset", *rules)


def url(fleet: Fleet, role: str) -> str:
    return fleet.url.replace("redis://", f"redis://vinoqueue-{role}:{PASSWORDS[role]}@")


@pytest.fixture
def ruled_fleet(empty_fleet: Fleet) -> Fleet:
    set_rules(empty_fleet)
    return empty_fleet


def test_the_service_runs_by_the_rules(ruled_fleet: Fleet) -> None:
    fleet = ruled_fleet
    options = ["--scope", "admin", "--requests-per-minute", "100", "--concurrency", "9"]
    made = subprocess.run(
        [sys.executable, "-m", "cli.main", "key", "create", *options],
        env={**os.environ, "VINOQUEUE_REDIS_URL": url(fleet, "admin")},
        capture_output=True,
        text=True,
        check=True,
    )
    headers = {"content-type": "application/json", "authorization": f"Bearer {made.stdout.strip()}"}
    worker = url(fleet, "worker")
    fleet.worker(*SIMULATED, "--redis-url", worker)
    fleet.api("--redis-url", url(fleet, "api"))
    fleet.until(lambda: fleet.status("/ready") == 200, "readiness")
    check = [sys.executable, "-m", "cli.main", "health", "worker", "--serving", "--redis-url", worker]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    status, _, answer = fleet.request("POST", "/v1/chat/completions", ASK, headers)
    assert status == 200, answer
    view = json.loads(fleet.request("GET", "/v1/fleet", None, headers)[2])
    assert (view["store"], len(view["workers"]), len(view["models"])) == ("up", 1, 1)
    stored = json.loads(answer)["id"]
    assert fleet.request("GET", f"/v1/chat/completions/{stored}", None, headers)[0] == 200
    assert fleet.request("DELETE", f"/v1/chat/completions/{stored}", None, headers)[0] == 200

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
    fleet.until(lambda: b'"failed"' in fleet.request("GET", path, None, headers)[2], "the batch to be read")
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
    fleet.until(lambda: store.llen("vinoqueue:dead-letters") == 1, "the corrupt job to become a dead letter")

    for role in ("admin", "api"):
        looked = run(fleet, role, "status", "--json")
        assert json.loads(looked.stdout)["replicas"]
    assert command(store, "ACL", "LOG") == [], fleet.logs()


def run(fleet: Fleet, role: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ``vinoqueue`` as a user of the store."""
    parts = [sys.executable, "-m", "cli.main", *arguments, "--redis-url", url(fleet, role)]
    return subprocess.run(parts, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("role", "command"), [("worker", ("status",)), ("api", ("key", "create"))])
def test_a_command_without_the_right_says_so(ruled_fleet: Fleet, role: str, command: tuple[str, ...]) -> None:
    done = run(ruled_fleet, role, *command)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Redis refuses this: "), done.stderr
    assert "the user in --redis-url" in done.stderr


@pytest.mark.parametrize(
    ("role", "command"),
    [
        ("api", ("HSET", "vinoqueue:keys", "key-1", "{}")),
        ("api", ("SET", "vinoqueue:worker:w1", "{}")),
        ("api", ("SET", "other:service", "1")),
        ("worker", ("HGETALL", "vinoqueue:keys")),
        ("worker", ("HGETALL", "vinoqueue:buckets:key-1")),
        ("worker", ("EVAL", "return redis.call('HGETALL', 'vinoqueue:keys')", "0")),
        ("worker", ("ZRANGE", "vinoqueue:stored-index:key-1", "0", "-1")),
        ("worker", ("HGETALL", "vinoqueue:outbox:api-1")),
        ("worker", ("PUBLISH", "other", "x")),
        *((role, command) for role in PASSWORDS for command in (("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"))),
        *((role, command) for role in PASSWORDS for command in (("ACL", "LIST"), ("SHUTDOWN",), ("SAVE",))),
    ],
)
def test_no_role_can_do_more(rules: Fleet, role: str, command: tuple[str, ...]) -> None:
    with redis.Redis.from_url(url(rules, role)) as client, pytest.raises(redis.ResponseError, match=r"permission|ACL"):
        client.execute_command(*command)


@pytest.fixture(scope="module")
def rules(session_fleet: Fleet) -> Fleet:
    """The shared fleet's store, with the rules in it."""
    set_rules(session_fleet)
    return session_fleet
