"""Keys and limits over real HTTP, in the form of each dialect."""

import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from azure.ai.inference import ChatCompletionsClient
from azure.ai.inference.models import UserMessage
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from openai.types.chat import ChatCompletionMessageParam

from tests.support.eventually import PATIENCE
from tests.support.fleet import PATIENT, SIMULATED, Fleet, fleet
from tests.support.redis_types import at_once
from tests.support.sdk_types import conversation

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
BODY = {"model": "sim", "messages": HELLO, "max_tokens": 5}
JSON = {"content-type": "application/json"}


def post(
    fleet: Fleet, secret: str = "", body: object = None, path: str = "/v1/chat/completions", **headers: str
) -> Any:
    """The status, headers and decoded body of a chat request."""
    credentials = {"authorization": f"Bearer {secret}"} if secret else {}
    raw = json.dumps(body or BODY)
    status, answer_headers, answer = fleet.request("POST", path, raw, {**JSON, **credentials, **headers})
    return status, answer_headers, json.loads(answer)


@pytest.fixture(scope="module")
def closed_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, str]]:
    """A fleet with a key without limits, and its secret. Tests add keys of their own."""
    with fleet(tmp_path_factory.mktemp("closed"), lease=PATIENT) as running:
        secret = running.key("create", "--name", "first")
        running.worker()
        running.api("--require-keys")
        yield running, secret


@pytest.fixture(scope="module")
def one_slot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, str, str]]:
    """A fleet that serves one request at a time, and the secrets of two keys."""
    with fleet(tmp_path_factory.mktemp("one-slot"), lease=PATIENT) as running:
        first, second = (
            running.key("create", "--name", name, "--priority", "priority") for name in ("first", "second")
        )
        running.worker(*SIMULATED, "--max-batch", "1", "--log-level", "debug")
        running.api("--require-keys", "--queue-timeout", str(PATIENCE))
        yield running, first, second


@contextmanager
def slot_taken(fleet: Fleet, secret: str) -> Iterator[None]:
    """A stream of a key has the only slot."""
    with fleet.client().with_options(api_key=secret) as client:
        stream = client.chat.completions.create(
            model="sim", messages=[{"role": "user", "content": "[[tokens 100000]]"}], stream=True
        )
        with stream:
            next(stream)
            yield
            next(stream)


def create(fleet: Fleet, *arguments: str) -> str:
    """Make a key and wait until the API knows it."""
    secret = fleet.key("create", *arguments)
    fleet.until(
        lambda: fleet.request("GET", "/v1/models", None, {"api-key": secret})[0] == 200, "the API to know the key"
    )
    return secret


def test_both_headers_are_read_and_one_valid_key_is_enough(closed_fleet: tuple[Fleet, str]) -> None:
    fleet, secret = closed_fleet
    assert post(fleet, secret)[0] == 200
    assert post(fleet, **{"api-key": secret})[0] == 200
    assert post(fleet, "sk-wrong-and-long", **{"api-key": secret})[0] == 200
    assert post(fleet, secret, **{"api-key": "sk-wrong-and-long"})[0] == 200
    assert post(fleet, authorization=f"bearer {secret}")[0] == 200
    assert post(fleet, authorization=f"Basic {secret}")[0] == 401


def test_names_of_models_and_hosts_need_a_key_where_metrics_are_not_open(tmp_path: Path) -> None:
    with fleet(tmp_path) as running:
        secret = running.key("create")
        running.api("--no-open-metrics")
        assert [running.status(path) for path in ("/health", "/metrics")] == [401, 401]
        assert [
            running.request("GET", path, headers={"api-key": secret})[0] in (200, 503)
            for path in ("/health", "/metrics")
        ] == [True, True]


def test_nothing_is_revealed_without_a_valid_key(closed_fleet: tuple[Fleet, str]) -> None:
    fleet, secret = closed_fleet
    for path in ("/v1/models", "/v3/models", "/v3/config", "/v1/nothing", "/info?api-version=2024-05-01-preview"):
        assert fleet.request("GET", path)[0] == 401, path
    fleet.until(lambda: fleet.status("/ready") == 200, "readiness")
    assert [fleet.status(path) for path in ("/live", "/ready", "/health", "/metrics", "/openapi.json")] == [200] * 5
    status, headers, answer = post(fleet, "sk-wrong-and-long-xyz")
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert answer["error"]["code"] == "invalid_api_key"
    assert "sk-wr***yz" in answer["error"]["message"]
    assert "and-long" not in fleet.logs()
    assert secret not in fleet.logs()


def test_the_sdks_raise_what_their_users_catch(closed_fleet: tuple[Fleet, str]) -> None:
    fleet, secret = closed_fleet
    with pytest.raises(openai.AuthenticationError) as refused:
        fleet.client().chat.completions.create(model="sim", messages=HELLO)
    assert refused.value.code == "invalid_api_key"
    endpoint = f"http://127.0.0.1:{fleet.port}"
    with ChatCompletionsClient(endpoint, AzureKeyCredential("wrong-key")) as stranger:
        with pytest.raises(ClientAuthenticationError):
            stranger.complete(messages=conversation(UserMessage("hello")))
        status, headers, answer = post(
            fleet, path="/chat/completions?api-version=2024-05-01-preview", **{"api-key": "wrong"}
        )
    assert (status, headers["x-ms-error-code"], answer["status"]) == (401, "unauthorized", 401)
    with ChatCompletionsClient(endpoint, AzureKeyCredential(secret)) as client:
        assert client.complete(messages=conversation(UserMessage("hello")), max_tokens=3).choices[0].message.content


def test_only_who_sees_the_fleet_is_told_the_worker(closed_fleet: tuple[Fleet, str]) -> None:
    fleet, secret = closed_fleet
    asked = {"x-vinoqueue-worker": "true"}
    assert "x-vinoqueue-worker" not in post(fleet, secret, **asked)[1]
    operator = create(fleet, "--scope", "admin")
    assert post(fleet, operator, **asked)[1]["x-vinoqueue-worker"] == fleet.workers()[0]["id"]


def test_keys_follow_the_command_line(closed_fleet: tuple[Fleet, str]) -> None:
    fleet, _ = closed_fleet
    secret = create(fleet, "--name", "to rotate")
    (first,) = (key for key in json.loads(fleet.key("list", "--json")) if key["name"] == "to rotate")
    assert "digest" not in first
    rotated = fleet.key("rotate", first["id"], "--grace", "1h")
    fleet.until(lambda: post(fleet, rotated)[0] == 200, "the new secret to open")
    assert post(fleet, secret)[0] == 200
    fleet.key("revoke", first["id"])
    fleet.until(lambda: post(fleet, rotated)[0] == 401, "the key to end")
    assert post(fleet, secret)[0] == 401
    (line,) = (line for line in fleet.key("list").splitlines() if first["id"] in line)
    assert "revoked" in line


def test_keys_of_file_and_environment(empty_fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "key", "create", "--toml"],
        env={**os.environ, "TMPDIR": str(tmp_path)},  # where no instance runs
        capture_output=True,
        text=True,
        check=True,
    )
    path.write_text(done.stdout)
    empty_fleet.api(
        "--keys-file", str(path), "--api-keys", "from-the-environment", "--no-open-metrics", "--require-keys"
    )
    for secret in (done.stderr.split()[-1], "from-the-environment"):
        assert empty_fleet.request("GET", "/v1/models", None, {"api-key": secret})[0] == 200
    assert [empty_fleet.status(path) for path in ("/v1/models", "/metrics")] == [401, 401]


def test_requests_per_minute(closed_fleet: tuple[Fleet, str]) -> None:
    fleet, _ = closed_fleet
    secret = create(fleet, "--requests-per-minute", "2")
    status, headers, _ = post(fleet, secret)
    assert (status, headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == (200, "2", "1")
    assert headers["x-ratelimit-reset-requests"].endswith("s")
    assert "x-ratelimit-limit-tokens" not in headers
    post(fleet, secret)
    client = fleet.client().with_options(api_key=secret)
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model="sim", messages=HELLO)
    assert (refused.value.code, refused.value.type) == ("rate_limit_exceeded", "requests")
    received = refused.value.response.headers
    milliseconds = int(received["retry-after-ms"])
    assert 0 < milliseconds <= 30_000
    assert int(received["retry-after"]) == math.ceil(milliseconds / 1000)
    assert received["x-ratelimit-remaining-requests"] == "0"
    status, headers, answer = post(fleet, secret, path="/v1/messages", **{"anthropic-version": "2023-06-01"})
    assert (status, answer["error"]["type"]) == (429, "rate_limit_error")
    assert headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert headers["anthropic-ratelimit-requests-reset"].endswith("Z")
    assert headers["request-id"] == answer["request_id"]
    assert "retry-after" in headers
    assert "x-ratelimit-limit-requests" not in headers
    azure = {"path": "/chat/completions?api-version=2024-05-01-preview"}
    status, headers, answer = post(fleet, secret, {"messages": HELLO}, **azure)
    assert (status, answer["error"]) == (429, "Too Many Requests")
    endpoint = f"http://127.0.0.1:{fleet.port}"
    with (
        ChatCompletionsClient(endpoint, AzureKeyCredential(secret), retry_total=0) as azure_client,
        pytest.raises(HttpResponseError) as azure_refused,
    ):
        azure_client.complete(messages=conversation(UserMessage("hello")))
    assert azure_refused.value.status_code == 429


def test_responses_belong_to_their_key(closed_fleet: tuple[Fleet, str]) -> None:
    fleet, secret = closed_fleet
    with fleet.client().with_options(api_key=secret) as client:
        response = client.responses.create(model="sim", input="hello", max_output_tokens=16)
        other = client.with_options(api_key=create(fleet))
        with pytest.raises(openai.NotFoundError):
            other.responses.retrieve(response.id)
        with pytest.raises(openai.BadRequestError, match="Previous response"):
            other.responses.create(model="sim", input="a", previous_response_id=response.id)


def test_a_request_waits_no_longer_than_it_may(one_slot: tuple[Fleet, str, str]) -> None:
    fleet, secret, _ = one_slot
    with slot_taken(fleet, secret), fleet.redis() as store:
        status, headers, answer = post(fleet, secret, **{"x-queue-timeout": "0.2"})
        assert (status, answer["error"]["code"]) == (503, "queue_timeout")
        assert int(headers["retry-after"]) > 0
        azure = {"path": "/chat/completions?api-version=2024-05-01-preview", "x-queue-timeout": "0.1"}
        status, headers, _ = post(fleet, secret, {"messages": HELLO}, **azure)
        assert (status, headers["x-ms-error-code"]) == (503, "queue_timeout")
        fleet.until(lambda: store.zcard("vinoqueue:queue:sim") == 0, "the queue to be empty")
        assert len(at_once(store.keys("arq:job:*"))) == 1
    status, _, answer = post(fleet, secret, **{"x-queue-timeout": "soon"})
    assert (status, answer["error"]["param"]) == (400, "x-queue-timeout")


def test_a_request_that_a_worker_has_may_take_longer_than_it_may_wait(session_fleet: Fleet) -> None:
    body = {"model": "sim", "messages": [{"role": "user", "content": "[[tokens 200]]"}], "max_tokens": 200}

    # On a busy machine, the worker may take it too late.
    def tokens() -> int:
        status, _, answer = post(session_fleet, "", body, **{"x-queue-timeout": "0.3"})
        return answer["usage"]["completion_tokens"] if status == 200 else 0

    session_fleet.until(lambda: tokens() == 200, "a request to be taken in time, and completed")


def order_of_service(fleet: Fleet, holder: str, asked: list[tuple[str, dict[str, Any]]]) -> list[int]:
    """The numbers of tokens of requests that have waited for the only slot, which ``holder`` had, in their order.

    The worker's log tells it: on a busy machine, replica and clients may come to read the ends in another one.
    """
    log = fleet.processes[0].log
    before = len(log.read_text())

    def ended() -> list[int]:
        return [
            int(count) for count in re.findall(r" outcome=length .*completion_tokens=(\d+)", log.read_text()[before:])
        ]

    threads = []
    with slot_taken(fleet, holder), fleet.redis() as store:
        for secret, body in asked:
            threads.append(threading.Thread(target=post, args=(fleet, secret, body)))
            threads[-1].start()
            fleet.until(lambda: at_once(store.zcard("vinoqueue:queue:sim")) == len(threads), "the request to wait")
    for thread in threads:
        thread.join()
    fleet.until(lambda: len(ended()) == len(asked), "all to be logged")
    return ended()


def test_waiting_requests_are_served_by_their_tier(one_slot: tuple[Fleet, str, str]) -> None:
    fleet, first, _ = one_slot
    tiers = enumerate(("flex", "default", "priority"), start=1)
    asked = [(first, {**BODY, "max_tokens": tokens, "service_tier": tier}) for tokens, tier in tiers]
    assert order_of_service(fleet, first, asked) == [3, 2, 1]


def test_the_queue_is_bounded_by_the_wait_that_it_means(empty_fleet: Fleet) -> None:
    empty_fleet.worker(*SIMULATED, "--max-batch", "2", "--sim-step", "0.01")
    empty_fleet.api("--max-wait", "1")
    body = {"model": "sim", "messages": [{"role": "user", "content": "[[tokens 50]]"}], "max_tokens": 50}
    stop = threading.Event()

    def keep_asking() -> None:
        while not stop.is_set():
            status, headers, _ = post(empty_fleet, "", body)
            seen.append((status, headers))
            if status == 429:
                time.sleep(0.1)

    seen: list[tuple[int, dict[str, str]]] = []
    threads = [threading.Thread(target=keep_asking) for _ in range(12)]
    for thread in threads:
        thread.start()
    try:
        # Two slots of 50 tokens at 100 tokens a second: four requests a second, so four may wait.
        empty_fleet.until(lambda: any(status == 429 for status, _ in seen), "a request to be refused")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {status for status, _ in seen} == {200, 429}
    received = [int(headers["retry-after-ms"]) for status, headers in seen if status == 429]
    assert all(1_000 <= wait <= 30_000 for wait in received)


def test_refusals_are_counted(closed_fleet: tuple[Fleet, str]) -> None:
    fleet, _ = closed_fleet

    def refused() -> float:
        page = fleet.request("GET", "/metrics")[2].decode()
        found = re.search(r'^vinoqueue_refused_requests_total\{kind="unauthorized"\} (\S+)$', page, re.MULTILINE)
        return float(found[1]) if found else 0.0

    before = refused()
    for _ in range(3):
        assert post(fleet)[0] == 401
    assert refused() == before + 3


def test_a_key_sees_the_models_that_it_may_use(closed_fleet: tuple[Fleet, str]) -> None:
    fleet, secret = closed_fleet
    other = create(fleet, "--models", "other")
    for key, names in ((secret, ["sim"]), (other, [])):
        client = fleet.client().with_options(api_key=key)
        assert [model.id for model in client.models.list()] == names
    with pytest.raises(openai.NotFoundError):
        fleet.client().with_options(api_key=other).models.retrieve("sim")


def test_an_api_that_has_no_keys_and_one_with_a_bad_file_do_not_start(empty_fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text("[[key]]\nname = 3\n")
    without = empty_fleet.start("api", "--port", "0", "--require-keys")
    malformed = empty_fleet.start("api", "--port", "0", "--keys-file", str(path))
    for api in (without, malformed):
        assert api.popen.wait(PATIENCE) == 1
    assert "there is no API key" in without.log.read_text()
    assert "vinoqueue key create" in without.log.read_text()
    assert "malformed" in malformed.log.read_text()


def test_an_api_that_requires_keys_starts_closed_while_the_store_is_away(empty_fleet: Fleet) -> None:
    empty_fleet.store.kill()
    empty_fleet.api("--require-keys")
    assert empty_fleet.request("GET", "/v1/models")[0] in (401, 503)
    empty_fleet.store.start()
    empty_fleet.until(lambda: empty_fleet.request("GET", "/v1/models")[0] == 401, "the store to be asked for keys")
