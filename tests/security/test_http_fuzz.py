"""Random bytes that are almost HTTP, over raw sockets: whatever clients send, the replica lives, serves others, keeps
its memory, frees its slots and logs no traceback. A failure names its seed: `HTTP_FUZZ_SEED=…` repeats the run."""

import json
import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from tests.security.raw import CHAT, HELLO, connect, memory
from tests.support.fleet import SIMULATED, Fleet
from tests.support.fleet_fixture import fleet_fixture
from tests.support.fuzzing import cases
from tests.support.redis_types import at_once

ROUNDS = 6
SESSIONS = 60
"""Connections of a round, which are open at the same time."""

GROWTH = 96 * 2**20
"""Bytes by which the replica's memory may grow in a run."""

SEED = int(os.environ.get("HTTP_FUZZ_SEED", "20260419"))

LONG = {"model": "sim", "messages": [{"role": "user", "content": "[[tokens 4000]]"}], "max_tokens": 4000}

METHODS = ["GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "CONNECT", "PRI", "get", "G\x00T", "", "M" * 300]
TARGETS = [
    "/live", "/ready", "/ready/replica", "/health", "/metrics", "/openapi.json",
    "/v1/models", "/v1//models", "/v1/models/%ff%00", CHAT,
    "/v3/chat/completions", "/v1/completions", "/chat/completions?api-version=1", "*", "//", "/" + "a" * 5000,
    "http://evil.example/live", "evil.example:443", "/?\x80", "http://[::1", "/%", "/\xe9", "/a b", "",
]  # fmt: skip
VERSIONS = ["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "http/1.1", "HTTP/1.1 ", "HTTPS/1.1", ""]
HEADERS = [
    "Host: localhost", "Host: evil.example", "Host: ", "Connection: close", "Connection: keep-alive",
    "Connection: upgrade", "Upgrade: h2c", "Upgrade: websocket", "Expect: 100-continue", "Expect: nothing",
    "Content-Type: text/plain", "Content-Type: application/json", "Content-Encoding: gzip",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity", "Content-Length: 0", "Content-Length: 1",
    "Content-Length: 99999999999999999999", "Content-Length: -1", "Content-Length: 5, 5", "TE: trailers", "Trailer: x",
    "Authorization: Bearer \xff", "api-key: " + "k" * 3000, "X-Request-Id: a\tb", "X-Queue-Timeout: nan", " folded: a",
    "no colon", ": no name", "x: " + "a" * 70_000, "x\x00: 1", "Cookie: " + "a=b; " * 100,
]  # fmt: skip

Script = list[tuple[str, bytes]]
"""What one client does: pairs of an action (send, pause, half-close, reset) and the bytes to send."""


def request(random_: random.Random) -> bytes:
    """An honest request, with a length or in chunks."""
    kind = random_.randrange(6)
    if kind == 0:
        return b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    if kind == 1:
        return b"GET /v1/models HTTP/1.0\r\n\r\n"
    body = json.dumps({**random_.choice([HELLO, HELLO, LONG]), "stream": random_.random() < 0.5}).encode()
    lines = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    if kind < 4:
        return lines + b"Content-Length: %d\r\n\r\n" % len(body) + body
    return lines + b"Transfer-Encoding: chunked\r\n\r\n" + in_chunks(random_, body)


def in_chunks(random_: random.Random, body: bytes) -> bytes:
    """``body`` in chunks of random sizes, with extensions and trailers now and then."""
    result = bytearray()
    while body:
        size = random_.choice([1, 2, 7, 64, 4096])
        extension = random_.choice([b"", b"", b";a", b";a=b", b";" + b"e" * random_.randrange(5000)])
        result += b"%x%b\r\n%b\r\n" % (len(body[:size]), extension, body[:size])
        body = body[size:]
    trailers = [b"x%d: %b\r\n" % (number, b"t" * random_.randrange(200)) for number in range(random_.randrange(20))]
    return bytes(result) + b"0\r\n" + b"".join(trailers) + b"\r\n"


def made_up(random_: random.Random) -> bytes:
    """A head put together of odd parts, and something like a body."""
    first = " ".join(random_.choice(parts) for parts in (METHODS, TARGETS, VERSIONS))
    lines = random_.sample(HEADERS, random_.randrange(8))
    end = random_.choice(["\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n"])
    head = (end.join([first, *lines]) + end + end).encode("latin-1")
    return head + random_.choice([b"", b"{}", b"0\r\n\r\n", b"5\r\nabc", in_chunks(random_, b"{}"), os_bytes(random_)])


def os_bytes(random_: random.Random) -> bytes:
    return random_.randbytes(random_.choice([1, 100, 10_000]))


def mutated(random_: random.Random, data: bytes) -> bytes:
    """``data`` with a few bytes changed, dropped, repeated or put in."""
    result = bytearray(data)
    for _ in range(random_.randrange(1, 6)):
        place = random_.randrange(len(result) + 1)
        match random_.randrange(5):
            case 0:
                result[place : place + 1] = random_.randbytes(1)
            case 1:
                del result[place : place + random_.randrange(1, 30)]
            case 2:
                piece = result[place : place + random_.randrange(1, 200)]
                result[place:place] = piece * random_.choice([1, 2, 50])
            case 3:
                result[place:place] = random_.choice([b"\r\n", b"\n", b"\0", b"\r\n\r\n", b":", b"0\r\n\r\n", b"\xff"])
            case 4:
                result[place:place] = random_.randbytes(random_.randrange(1, 50))
    return bytes(result)


def flood(random_: random.Random) -> bytes:
    """Much of one thing."""
    chunked = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    begin, piece = random_.choice(
        [
            (b"GET / HTTP/1.1\r\n", b"a: b\r\n"),
            (b"GET /", b"a"),
            (b"", b"\r\n"),
            (b"", b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            (chunked + b"0\r\n", b"x: y\r\n"),
            (chunked + b"0\r\nx: ", b"y"),
            (chunked + b"1;", b"e"),
            (chunked, b"1\r\n \r\n"),
            (chunked + b"7fffffff\r\n", b" "),
            (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n", b" "),
        ]
    )
    return begin + piece * (random_.choice([20_000, 500_000]) // len(piece))


def script(random_: random.Random) -> Script:
    """What a client does on its connection."""
    steps: Script = []
    makers: list[Callable[[], bytes]] = [
        lambda: request(random_),
        lambda: mutated(random_, request(random_)),
        lambda: made_up(random_),
        lambda: mutated(random_, made_up(random_)),
        lambda: request(random_) + request(random_),
        lambda: request(random_) + made_up(random_),
        lambda: flood(random_),
    ]
    for _ in range(random_.choice([1, 1, 2, 4])):
        data = random_.choices(makers, weights=[3, 4, 4, 2, 2, 2, 1])[0]()
        cuts = sorted(random_.randrange(len(data) + 1) for _ in range(random_.choice([0, 0, 1, 3, 10])))
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            steps.append(("send", data[begin:end]))
            if random_.random() < 0.3:
                steps.append(("pause", b""))
        steps.append((random_.choice(["pause", "read"]), b""))
    steps.append((random_.choice(["close", "close", "half-close", "reset", "stay"]), b""))
    return steps


def play(scripts: list[Script], fleet_: Fleet) -> None:
    """Let the clients take their steps in turns, a step each; those that stay are closed at the end."""
    sockets = [connect(fleet_) for _ in scripts]
    for one in sockets:
        one.settimeout(0.02)
    for number in range(max(map(len, scripts))):
        for one, steps in zip(sockets, scripts, strict=True):
            if number < len(steps):
                with suppress(OSError):
                    take(one, *steps[number])
    for one in sockets:
        one.close()


def take(connection: socket.socket, action: str, data: bytes) -> None:
    match action:
        case "send":
            connection.sendall(data)
        case "pause":
            time.sleep(0.001)
        case "read":
            connection.recv(65536)
        case "half-close":
            connection.shutdown(socket.SHUT_WR)
        case "close":
            connection.close()
        case "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()


target = fleet_fixture(*SIMULATED[:-1], "0.05", api=("--body-timeout", "1", "--max-body", "1048576"))
"""A replica with short times."""


def test_almost_http(target: Fleet) -> None:
    random_ = random.Random(SEED)
    api = target.processes[-1]
    store = target.redis()
    # The first rounds fill pools and caches.
    play([script(random_) for _ in range(SESSIONS)], target)
    before = memory(api)
    for number in range(cases(ROUNDS)):
        play([script(random_) for _ in range(SESSIONS)], target)
        where = f"HTTP_FUZZ_SEED={SEED}, round {number}"
        assert target.status("/live") == 200, where
        assert api.popen.poll() is None, where
        assert "Traceback" not in target.logs(), f"{where}\n{target.logs()}"
        assert memory(api) - before < GROWTH, where
    target.until(
        lambda: [at_once(store.zcard(f"vinoqueue:{name}:sim")) for name in ("inflight", "queue")] == [0, 0],
        "the slots to be free",
    )
    target.until(lambda: open_sockets(api.popen.pid, target.port) <= 1, "the connections to be closed")
    status, _, answer = target.request("POST", CHAT, json.dumps(HELLO))
    assert status == 200, answer
    assert "Traceback" not in target.logs()


def open_sockets(pid: int, port: int) -> int:
    """How many sockets on ``port`` the process has, the listening one included."""
    numbers = set()
    with suppress(FileNotFoundError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                numbers.add(os.readlink(entry.path))
    count = 0
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port and f"socket:[{fields[9]}]" in numbers:
                count += 1
    return count
