"""Connections of hostile clients: all that they can send has a bound, and so has the time that they can stay."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shared.runtime.processes import die_with_parent
from tests.security.raw import (
    HELLO,
    chunked,
    chunks,
    connect,
    exchange,
    head,
    is_closed,
    memory,
    post,
    read_answer,
    read_head,
    read_to_end,
)
from tests.support.fleet import Fleet, fleet, free_port
from tests.support.fleet_fixture import fleet_fixture
from tests.support.redis_types import at_once

MEGABYTE = 2**20
SLOW = ("--engine", "simulated", "--model", "sim", "--sim-step", "0.05")
"""Answers to LONG take 200 seconds."""

LIVE = head("GET", "/live")
MODELS = head("GET", "/v1/models")
LONG = {"model": "sim", "messages": [{"role": "user", "content": "[[tokens 4000]]"}], "max_tokens": 4000}


target = fleet_fixture(*SLOW, api=("--body-timeout", "5"))
"""An open replica with the usual bounds on sizes, and short times."""


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A replica that lets nobody in without a key."""
    with fleet(tmp_path_factory.mktemp("closed")) as running:
        sizes = ("--max-body", "262144", "--max-media-body", "262144")
        running.api("--api-keys", "k" * 64, *sizes, "--body-timeout", "3")
        yield running


@pytest.fixture(autouse=True)
def no_tracebacks(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the replica lives, and has logged no traceback."""
    yield
    for name in {"target", "closed"} & set(request.fixturenames):
        running: Fleet = request.getfixturevalue(name)
        assert "Traceback" not in running.logs()
        assert all(process.popen.poll() is None for process in running.processes)


def send_until_answered(connection: socket.socket, piece: bytes, most: int) -> int:
    """Send ``piece`` again and again until an answer comes; return how many bytes that were."""
    sent = 0
    connection.setblocking(False)
    try:
        while sent < most:
            try:
                sent += connection.send(piece)
            except BlockingIOError:
                pass
            try:
                if connection.recv(1, socket.MSG_PEEK):
                    break
            except BlockingIOError:
                pass
    finally:
        connection.settimeout(60)
    return sent


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (chunks([b"{}"]) + b"0\r\n", b"x1: a\r\n" * 10_000),
        (chunks([b"{}"]) + b"0\r\nx: ", b"a" * 65_536),
        (b"1;", b"a" * 65_536),
        (b"1;a=", b"b" * 65_536),
        (b"", chunks([b" "] * 10_000)),
    ],
    ids=["trailers", "one trailer", "chunk extension", "value of an extension", "chunks of one byte"],
)
def test_framing_of_a_body_is_bounded(target: Fleet, begin: bytes, piece: bytes) -> None:
    api = target.processes[-1]
    before = memory(api)
    with connect(target) as connection:
        connection.sendall(chunked() + begin)
        send_until_answered(connection, piece, 16 * MEGABYTE)
        answer = read_head(connection)
    assert answer.startswith(b"HTTP/1.1 413"), answer
    assert memory(api) - before < 32 * MEGABYTE


def test_trailers_before_the_key_is_checked(closed: Fleet) -> None:
    api = closed.processes[-1]
    before = memory(api)
    with connect(closed) as connection:
        connection.sendall(chunked() + chunks([b"{}"]))
        assert read_answer(connection).startswith(b"HTTP/1.1 401")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(b"x1: a\r\n" * 10_000_000)
    assert memory(api) - before < 32 * MEGABYTE


def test_small_chunks_and_a_few_trailers_are_fine(target: Fleet) -> None:
    pieces = chunks(bytes([byte]) for byte in json.dumps(HELLO).encode().ljust(10_000))
    with connect(target) as connection:
        connection.sendall(chunked() + pieces + b"0;last\r\nx-checksum: abc\r\n\r\n")
        assert read_answer(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(LIVE)
        assert read_answer(connection).startswith(b"HTTP/1.1 200")


def test_many_headers(target: Fleet) -> None:
    lines = [f"a{number}: b" for number in range(300)]
    assert exchange(target, head("GET", "/live", *lines)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("rest", [b"\r\n", b"\r\n\r\n", b"G"])
def test_a_connection_is_not_held_open_between_requests(target: Fleet, rest: bytes) -> None:
    with connect(target) as connection:
        connection.sendall(LIVE)
        assert read_answer(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(rest)
        assert is_closed(connection)


def test_a_connection_is_not_held_open_by_a_body_that_nobody_reads(closed: Fleet) -> None:
    heads = (
        head("GET", "/live", "Content-Length: 100"),
        head("GET", "/live", "Transfer-Encoding: chunked"),
        head("POST", "/none", "Content-Length: 100"),
        head("POST", "/v1/chat/completions", "Content-Length: 100"),
    )
    with ExitStack() as opened:
        connections = [opened.enter_context(connect(closed)) for _ in heads]
        for connection, request_head in zip(connections, heads, strict=True):
            connection.sendall(request_head)
            read_answer(connection)
            connection.sendall(b"1")
        for connection, request_head in zip(connections, heads, strict=True):
            assert is_closed(connection), request_head


def test_a_body_that_nobody_reads_is_bounded(closed: Fleet) -> None:
    with connect(closed) as connection:
        connection.sendall(head("POST", "/v1/chat/completions", "Content-Length: 1000000000000"))
        assert read_answer(connection).startswith(b"HTTP/1.1 401")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(b"a" * 64 * MEGABYTE)


def test_the_connection_lives_on_after_a_body_that_nobody_read(closed: Fleet) -> None:
    with connect(closed) as connection:
        for _ in range(3):
            connection.sendall(post(HELLO))
            assert read_answer(connection).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("size", [100, 200_000, 2_000_000])
@pytest.mark.parametrize("lines", [(), ("Connection: close",)])
def test_an_early_answer_is_not_lost(closed: Fleet, size: int, lines: tuple[str, ...]) -> None:
    request_head = head("POST", "/v1/chat/completions", f"Content-Length: {size}", *lines)
    with connect(closed) as connection:
        connection.sendall(request_head)
        # The server has answered, and knows that the body is still to come.
        connection.recv(1, socket.MSG_PEEK)
        connection.sendall(b"a" * size)
        assert read_answer(connection).startswith(b"HTTP/1.1 401")
        if lines:
            assert read_to_end(connection) == b""


def test_a_431_is_not_lost(target: Fleet) -> None:
    pieces = [b"a" * 65_536] * 64
    assert exchange(target, b"GET /live HTTP/1.1\r\nx-long: ", *pieces).startswith(b"HTTP/1.1 431")


REFUSED = {
    b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03": "400): TLS, but this port serves plain HTTP. Use http://",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": "400): HTTP/2, which is not supported. Set the client or the proxy to",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + LIVE: "400): the PROXY protocol, which is not supported. Turn it off",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11": "400): the PROXY protocol, which is not supported. Turn it off",
    head(
        "POST", "/v1/models", "Content-Length: 1", "Content-Length: 2"
    ): "400): invalid HTTP: Duplicate Content-Length",
    head("GET", "/live", *["x: 1"] * 300): "431): The request has more than 256 headers.",
    b"GET /live HTTP/1.1\r\nx-long: "
    + b"a" * 4 * MEGABYTE: "431): The head of the request is larger than 65536 bytes.",
}


def test_what_a_connection_refuses_is_in_the_log_and_the_metrics(empty_fleet: Fleet) -> None:
    empty_fleet.api()
    for _ in range(2):
        for data, reason in REFUSED.items():
            assert exchange(empty_fleet, data).startswith(f"HTTP/1.1 {reason[:3]}".encode())
    log = empty_fleet.logs()
    assert {log.count(f"a request of 127.0.0.1 is refused ({reason}") for reason in REFUSED.values()} == {1}
    metrics = empty_fleet.request("GET", "/metrics")[2].decode()
    assert 'vinoqueue_connection_refusals_total{status="400"} 10.0' in metrics
    assert 'vinoqueue_connection_refusals_total{status="431"} 4.0' in metrics


def test_a_413_is_not_lost(target: Fleet) -> None:
    body = chunks([b" " * 65_536] * 128) + b"0\r\n\r\n"
    assert exchange(target, chunked("Connection: close"), body).startswith(b"HTTP/1.1 413")


def idle(fleet: Fleet) -> bool:
    store = fleet.redis()
    return [at_once(store.zcard(f"vinoqueue:{name}:sim")) for name in ("inflight", "queue")] == [0, 0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_a_pipelined_request_hides_no_disconnect(target: Fleet, stream: bool, together: bool) -> None:
    first = post({**LONG, "stream": stream})
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(target)) for _ in range(16)]
        for connection in connections:
            connection.sendall(first + LIVE if together else first)
        target.until(lambda: at_once(target.redis().zcard("vinoqueue:inflight:sim")) == 16, "16 claims")
        for connection in connections:
            if stream:
                read_head(connection)
            if not together:
                connection.sendall(LIVE)
    target.until(lambda: idle(target), "the slots to be free")


def test_a_pipelined_request_is_not_served_and_the_first_answer_is_whole(target: Fleet) -> None:
    for requests in ((post(HELLO) + LIVE,), (post(HELLO), LIVE, post(HELLO))):
        answer = exchange(target, *requests)
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.endswith(b"}")


def test_a_stream_before_a_pipelined_request_is_whole(target: Fleet) -> None:
    answer = exchange(target, post({**HELLO, "stream": True}), b"garbage" * 1000)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_full_replica_drops_idle_connections_first(empty_fleet: Fleet) -> None:
    empty_fleet.api("--max-connections", "20", "--max-connections-per-address", "0")
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(empty_fleet)) for _ in range(40)]
        for connection in silent[-10:]:
            connection.sendall(MODELS)
            assert read_answer(connection).startswith(b"HTTP/1.1 200")
        assert is_closed(silent[0])


def test_a_replica_full_of_streams_refuses_and_stays_alive(empty_fleet: Fleet) -> None:
    empty_fleet.worker(*SLOW)
    empty_fleet.api("--max-connections", "8", "--max-connections-per-address", "0")
    with ExitStack() as stack:
        streams = [stack.enter_context(connect(empty_fleet)) for _ in range(8)]
        for stream in streams:
            stream.sendall(post({**LONG, "stream": True}))
            assert read_head(stream).startswith(b"HTTP/1.1 200")
        for _ in range(3):
            status, headers, body = empty_fleet.request("GET", "/v1/models")
            assert (status, json.loads(body)["error"]["code"]) == (503, "too_many_connections")
            assert (headers["connection"], headers["retry-after"]) == ("close", "1")
            assert empty_fleet.status("/live") == empty_fleet.status("/ready") == 200
        page = empty_fleet.request("GET", "/metrics")[2].decode()
        assert 'vinoqueue_refused_requests_total{kind="too_many_connections"} 3.0' in page
        for stream in streams:
            assert stream.recv(1)
    empty_fleet.until(lambda: empty_fleet.status("/v1/models") == 200, "a place to be free")


def test_an_address_has_its_share(empty_fleet: Fleet) -> None:
    empty_fleet.api("--max-connections-per-address", "5")
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connect(empty_fleet))
        assert empty_fleet.status("/v1/models") == 503
        assert empty_fleet.status("/live") == 200
    empty_fleet.until(lambda: empty_fleet.status("/v1/models") == 200, "a place to be free")


def test_few_open_files(empty_fleet: Fleet, tmp_path: Path) -> None:
    empty_fleet.port = free_port()
    command = ["sh", "-c", 'ulimit -n 200 && exec "$@"', "sh", sys.executable, "-P", "-m", "cli.main", "api"]
    command += ["--max-connections-per-address", "0"]
    environment = {**os.environ, "VINOQUEUE_REDIS_URL": empty_fleet.url}
    log = tmp_path / "api.log"
    with log.open("wb") as output:
        api = subprocess.Popen(
            [*command, "--port", str(empty_fleet.port)],
            env=environment,
            stdout=output,
            stderr=output,
            preexec_fn=die_with_parent,
        )
    try:
        empty_fleet.until(lambda: empty_fleet.status("/live") == 200, "the API to answer")
        with ExitStack() as stack:
            for _ in range(400):
                connection = stack.enter_context(connect(empty_fleet))
                connection.sendall(b"GET /live HTTP/1.1\r\n")
            assert empty_fleet.status("/live") == 200
            assert empty_fleet.status("/v1/models") == 200
    finally:
        api.terminate()
        api.wait(60)
    assert "200 files" in log.read_text()
    assert "Traceback" not in log.read_text()
