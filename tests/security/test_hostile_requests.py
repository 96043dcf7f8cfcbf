"""Hostile and broken requests: each is refused within its bound, and everybody else is served on."""

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from shared.redis import keys
from tests.security.raw import CHAT, HELLO, chunked, connect, exchange, head
from tests.support.fleet import Fleet, fleet
from tests.support.fleet_fixture import fleet_fixture
from tests.support.redis_types import at_once

JSON = {"content-type": "application/json"}


target = fleet_fixture()


@pytest.fixture(autouse=True)
def still_serving(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test an honest request is answered."""
    yield
    if "target" in request.fixturenames:
        running: Fleet = request.getfixturevalue("target")
        assert post(running, HELLO)[0] == 200
        assert all(process.popen.poll() is None for process in running.processes)


def post(running: Fleet, body: object, **headers: str) -> tuple[int, dict[str, object]]:
    raw = body if isinstance(body, str | bytes) else json.dumps(body)
    status, _, answer = running.request("POST", CHAT, raw, {**JSON, **headers})
    return status, json.loads(answer)


SLOW = {
    b"": b"",
    b"P": b"HTTP/1.1 408",
    b"POST /v1/chat": b"HTTP/1.1 408",
    b"GET /live HTTP/1.1\r\nhost: localhost\r\nx-slow: 1\r\n": b"HTTP/1.1 408",
    head("GET", "/live") + b"GET /live HTTP/1.1\r\n": b"HTTP/1.1 200",
    head("POST", CHAT, "Content-Type: application/json", "Content-Length: 1000") + b'{"model"': b"HTTP/1.1 408",
}
"""What clients send before they fall silent, and how the last answer begins that is not about that."""


def test_slow_requests_are_cut_off(tmp_path: Path) -> None:
    """The time counts from the first byte of each."""
    with fleet(tmp_path) as running, ExitStack() as opened:
        running.api("--body-timeout", "1")
        connections = [opened.enter_context(connect(running)) for _ in SLOW]
        for connection, sent in zip(connections, SLOW, strict=True):
            connection.sendall(sent)
        for connection, (sent, expected) in zip(connections, SLOW.items(), strict=True):
            answer = bytearray()
            with suppress(ConnectionResetError):
                while received := connection.recv(65536):
                    answer += received
            assert answer.startswith(expected), sent
            assert answer.count(b"HTTP/1.1 200") == (1 if expected.endswith(b"200") else 0), sent


@pytest.mark.parametrize(
    "lines",
    [
        ("content-length: 5", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", "content-length: 5"),
        ("content-length: 5", "content-length: 6"),
        ("content-length: -1",),
        ("content-length: 5 5",),
        ("transfer-encoding: xchunked",),
        ("transfer-encoding: chunked, identity",),
        ("transfer-encoding : chunked",),
        ("x-folded: a\r\n b",),
        ("x-bad\x00name: 1",),
    ],
)
def test_requests_of_which_two_servers_would_think_differently(target: Fleet, lines: tuple[str, ...]) -> None:
    smuggled = b"0\r\n\r\nGET /models-of-another HTTP/1.1\r\nhost: localhost\r\n\r\n"
    answer = exchange(
        target, head("POST", CHAT, "Content-Type: application/json", "Connection: close", *lines), smuggled
    )
    assert answer.count(b"HTTP/1.1") == 1, answer
    assert answer.startswith(b"HTTP/1.1 4"), answer


@pytest.mark.parametrize("size", [b"zz", b"-5", b"0x5", b"ffffffffffffffffff", b"5 5"])
def test_bad_chunk_sizes(target: Fleet, size: bytes) -> None:
    assert exchange(target, chunked(), size + b"\r\n{}\r\n0\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_ids_with_line_ends_split_no_answer(target: Fleet) -> None:
    status, headers, _ = target.request("GET", "/live", None, {"x-request-id": "a%0d%0aset-cookie: b"})
    assert status == 200
    assert headers["x-request-id"].startswith("req_")
    assert b"\rx: b" not in exchange(target, head("GET", "/live", "Connection: close", "x-request-id: a\rx: b"))


@pytest.mark.parametrize(("encoding", "expected"), [("gzip", 413), ("deflate", 400), ("br", 415), ("gzip, zstd", 415)])
def test_compressed_bombs_are_refused(target: Fleet, encoding: str, expected: int) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    status, answer = post(target, bomb, **{"content-encoding": encoding})
    assert status == expected, answer


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "sim/../sim",
        "/etc/passwd",
        "sim\x00",
        "sim\r\nDEL vinoqueue:keys",
        "*",
        "",
        "x" * 100_000,
        "%73im",
    ],
)
def test_tricks_in_model_names(target: Fleet, name: str) -> None:
    status, answer = post(target, {**HELLO, "model": name})
    assert status == (404 if name else 400)
    assert len(str(answer)) < 1000 + len(name)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/..%2f..%2fetc%2fpasswd",
        "/v1/models/%00",
        "/v1/../live/../v1/models/none",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//evil.example/v1/models/none",
        "/v1/models/%ff%fe",
        "/static/app.py",
    ],
)
def test_tricks_in_urls(target: Fleet, path: str) -> None:
    status, _, body = target.request("GET", path)
    assert status == 404
    assert set(json.loads(body)) >= {"error"}


def test_urls_in_messages_are_never_fetched(target: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bait:
        bait.setblocking(False)
        url = f"http://127.0.0.1:{bait.getsockname()[1]}/secret"
        parts = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "file", "file": {"file_id": url}},
            {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
        ]
        for part in parts:
            assert post(target, {**HELLO, "messages": [{"role": "user", "content": [part]}]})[0] == 400
        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": url}}}
        post(target, {**HELLO, "response_format": schema})
        with pytest.raises(BlockingIOError):
            bait.accept()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"messages": []},
        {"tools": "x"},
        {"add_generation_prompt": False},
        {"__class__": {"__mro__": 1}},
        {"a": {"b": [{"c": "{{ ''.__class__.__mro__ }}"}]}},
        "{% for i in range(10**9) %}{% endfor %}",
        ["x"],
    ],
)
def test_hostile_template_arguments(target: Fleet, kwargs: object) -> None:
    body = json.dumps({**HELLO, "chat_template_kwargs": kwargs})
    status, _, answer = target.request("POST", "/v3/chat/completions", body, JSON)
    assert status in (200, 400), answer
    assert b"Traceback" not in answer


def test_a_payload_that_is_none_is_set_aside(target: Fleet) -> None:
    store = target.redis()
    hostile = [
        b"cos\nsystem\n(S'false'\ntR.",
        b"\x80\x04\x95\x1b\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x05false\x94\x85\x94R\x94.",
        b"{not json}",
        b"",
    ]
    for number, payload in enumerate(hostile):
        name = f"corrupt-{number}"
        store.set(keys.payload(name), payload)
        store.zadd(keys.queue("sim"), {name: number + 1})
    target.until(lambda: store.llen(keys.dead_letters("sim")) == len(hostile), "the payloads to be set aside")
    target.until(
        lambda: at_once(store.zcard(keys.queue("sim"))) + at_once(store.zcard(keys.inflight("sim"))) == 0,
        "the queue to be empty",
    )
    assert not store.exists(*(keys.payload(f"corrupt-{number}") for number in range(len(hostile))))


def test_a_frame_that_is_none_is_passed_over(target: Fleet) -> None:
    store = target.redis()
    (channel,) = at_once(store.pubsub_channels(keys.replica_channel("*")))
    for frame in (b"", b"\xff" * 100, b"\x91\x01", json.dumps({"job": "x"}).encode()):
        store.publish(channel, frame)
    (worker_channel,) = at_once(store.pubsub_channels(keys.worker_channel("*")))
    for message in (b"", b"\xff\xfe", b"cancel", b"explode now"):
        store.publish(worker_channel, message)
