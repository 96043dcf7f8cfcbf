"""Bytes over a socket, for clients that no HTTP library can play."""

import json
import socket
from collections.abc import Iterable
from pathlib import Path

from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet, Process

HELLO = {"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
CHAT = "/v1/chat/completions"


def connect(fleet: Fleet) -> socket.socket:
    """A connection to the replica; reads and writes that hang fail."""
    return socket.create_connection(("127.0.0.1", fleet.port), timeout=PATIENCE)


def read_answer(connection: socket.socket) -> bytes:
    """One answer with a content length."""
    answer = read_head(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    missing = int(head.lower().split(b"content-length:")[1].split()[0]) - len(body)
    while missing > 0:
        received = connection.recv(missing)
        assert received, answer
        answer += received
        missing -= len(received)
    return answer


def read_head(connection: socket.socket) -> bytes:
    """What has come when the head of an answer is complete."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        received = connection.recv(65536)
        assert received, answer
        answer += received
    return answer


def read_to_end(connection: socket.socket) -> bytes:
    """All that comes until the server closes. A reset is an error, as it may cost the client the answer."""
    answer = bytearray()
    while received := connection.recv(65536):
        answer += received
    return bytes(answer)


def exchange(fleet: Fleet, *pieces: bytes) -> bytes:
    """Send everything, and only then read, as many clients do; return all until the server closes."""
    with connect(fleet) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return read_to_end(connection)


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes the connection; what still comes is dropped."""
    try:
        while connection.recv(65536):
            pass
    except (ConnectionResetError, BrokenPipeError):
        return True
    except TimeoutError:
        return False
    return True


def head(method: str, path: str, *lines: str, version: str = "1.1") -> bytes:
    """A request's head with a Host header."""
    return "\r\n".join((f"{method} {path} HTTP/{version}", "Host: localhost", *lines, "", "")).encode("latin-1")


def post(body: object, *lines: str, path: str = CHAT, version: str = "1.1") -> bytes:
    """A whole request with a JSON body."""
    raw = json.dumps(body).encode()
    length = f"Content-Length: {len(raw)}"
    return head("POST", path, "Content-Type: application/json", length, *lines, version=version) + raw


def chunked(*lines: str, path: str = CHAT) -> bytes:
    """The head of a request with a chunked JSON body."""
    return head("POST", path, "Content-Type: application/json", "Transfer-Encoding: chunked", *lines)


def chunks(pieces: Iterable[bytes]) -> bytes:
    """``pieces`` as chunks, without the last, empty one."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def memory(process: Process) -> int:
    """The resident memory of a process in bytes."""
    for line in Path(f"/proc/{process.popen.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process has ended")
