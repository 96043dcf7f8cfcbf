"""``vinoqueue bench load`` against a replica with the simulated engine, and against servers that behave otherwise."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner

from cli.bench.endpoint import Endpoint
from cli.bench.parts import bench
from tests.support.fleet import PATIENT, Fleet, fleet

Reply = Callable[["Handler", dict[str, Any]], None]


class Server(ThreadingHTTPServer):
    """A server whose backlog holds all connections of a load. Connections beyond it are retried a second later."""

    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    """A request to a server of another make."""

    protocol_version = "HTTP/1.1"
    reply: Reply

    def do_GET(self) -> None:
        """List the models."""
        self.answer(200, {"object": "list", "data": [{"id": "theirs"}]})

    def do_POST(self) -> None:
        """Reply to a request for a completion."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).reply(self, body)

    def answer(self, status: int, body: object) -> None:
        """Send a JSON document."""
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def stream(self, *chunks: str | dict[str, Any], end: str = "data:[DONE]\r\n\r\n") -> None:
        """Send a stream to the end of the connection."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("connection", "close")
        self.end_headers()
        for chunk in chunks:
            text = chunk if isinstance(chunk, str) else json.dumps(chunk)
            self.wfile.write(f": comment\r\ndata:{text}\r\n\r\n".encode())
        self.wfile.write(end.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def server(reply: Reply) -> Iterator[str]:
    """A server with ``reply``; its URL."""
    handler = type("Replying", (Handler,), {"reply": reply})
    with Server(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()
            thread.join()


def piece(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def measured(url: str, *arguments: str) -> dict[str, Any]:
    """The figures of a load on ``url``."""
    done = CliRunner().invoke(bench, ["load", "--url", url, "--json", *arguments])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("load"), lease=PATIENT) as fleet_of_one:
        fleet_of_one.worker()
        fleet_of_one.api("--api-keys", "secret")
        # A replica that has just started lists no model yet.
        fleet_of_one.until(lambda: fleet_of_one.status("/ready") == 200, "the replica to know its worker")
        yield fleet_of_one


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_load_on_a_replica(running: Fleet, monkeypatch: pytest.MonkeyPatch, api: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    url = f"http://127.0.0.1:{running.port}/v1"
    load = ("--requests", "20", "--concurrency", "5", "--output-tokens", "30", "--ignore-eos", "--rate", "200")
    found = measured(url, "--api", api, *load)
    assert (found["completed"], found["failed"], found["output_tokens"]) == (20, 0, 600)
    assert found["prompt_tokens"] > 0
    assert not found["output_tokens_are_chunks"]
    assert 1 <= found["peak_concurrency"] <= 5
    assert found["output_tokens_per_s"] == pytest.approx(600 / found["duration_s"], rel=0.01)
    for latency in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        assert 0 < found[latency]["p50"] <= found[latency]["p95"] <= found[latency]["p99"]
    assert found["ttft_ms"]["p50"] < found["e2e_ms"]["p50"]


def test_a_load_that_is_refused_says_why(running: Fleet) -> None:
    done = CliRunner().invoke(bench, ["load", "--url", f"http://127.0.0.1:{running.port}", "--api-key", "wrong"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "responded with 401: Incorrect API key" in done.stderr


def test_a_server_without_usage_counts_chunks() -> None:
    asked: list[dict[str, Any]] = []

    def reply(handler: Handler, body: dict[str, Any]) -> None:
        asked.append(body)
        if "stream_options" in body:
            handler.answer(422, {"detail": "Unknown field: stream_options"})
        else:
            handler.stream(piece(""), piece("one "), piece("two "), piece("three", "stop"), end="")

    with server(reply) as url:
        found = measured(f"{url}/api/v3", "--requests", "4", "--extra-body", '{"temperature": null, "top_k": 1}')
    assert (found["completed"], found["output_tokens"], found["prompt_tokens"]) == (4, 12, None)
    assert found["output_tokens_are_chunks"]
    assert len(asked) == 6
    assert set(asked[-1]) == {"model", "messages", "stream", "max_tokens", "top_k"}
    assert asked[-1]["model"] == "theirs"
    assert len({body["messages"][0]["content"] for body in asked[1:]}) == 5


def test_errors_are_counted_by_kind() -> None:
    lock = threading.Lock()
    faults: dict[str, Callable[[Handler], None]] = {
        "HTTP 429": lambda handler: handler.answer(429, {"error": {"message": "slow down"}}),
        "HTTP 500": lambda handler: handler.answer(500, "broken"),
        "no event stream": lambda handler: handler.answer(200, piece("text", "stop")),
        "malformed chunk": lambda handler: handler.stream(piece("text"), "{"),
        "error in the stream": lambda handler: handler.stream(piece("text"), {"error": {"message": "out of memory"}}),
        "incomplete stream": lambda handler: handler.stream(piece("text"), end=""),
        "no text": lambda handler: handler.stream(piece("", "stop")),
        "connection lost": lambda handler: handler.connection.close(),
    }
    waiting = [*faults.values(), faults["HTTP 429"]]
    first = True

    def reply(handler: Handler, body: dict[str, Any]) -> None:
        nonlocal first
        handler.close_connection = True
        with lock:
            fault = waiting.pop() if waiting and not first else None
            first = False
        if fault:
            fault(handler)
        else:
            handler.stream(piece("text", "stop"), {"choices": [], "usage": {"completion_tokens": 7}})

    with server(reply) as url:
        found = measured(url, "--requests", "11")
    assert (found["completed"], found["failed"], found["output_tokens"]) == (2, 9, 14)
    assert {kind: error["count"] for kind, error in found["errors"].items()} == dict.fromkeys(faults, 1) | {
        "HTTP 429": 2
    }
    assert next(iter(found["errors"].items())) == ("HTTP 429", {"count": 2, "example": "slow down"})
    assert found["errors"]["error in the stream"]["example"] == "out of memory"


async def test_a_request_ends_after_its_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with Endpoint(url, "", "chat", {}, timeout=0.1) as endpoint:
            outcome = await endpoint.ask("hello")
    assert (outcome.error, outcome.message) == ("timeout", "no complete response within 0.1 s")


def test_a_load_without_a_success_fails() -> None:
    served = 0

    def reply(handler: Handler, body: dict[str, Any]) -> None:
        nonlocal served
        served += 1
        if served == 1:
            handler.stream(piece("text", "stop"))
        else:
            handler.answer(503, {"error": "overloaded"})

    with server(reply) as url:
        done = CliRunner().invoke(bench, ["load", "--url", url, "--requests", "3"])
    assert done.exit_code == 1
    assert "3  HTTP 503: overloaded" in done.stdout
    assert "Time to first token" not in done.stdout


def test_a_server_that_is_not_there() -> None:
    done = CliRunner().invoke(bench, ["load", "--url", "http://127.0.0.1:1"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "http://127.0.0.1:1/v1 can't be reached" in done.stderr
