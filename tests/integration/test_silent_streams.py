"""Streams without output for longer than a proxy waits, through nginx, raw and with the official SDKs."""

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event
from typing import IO, Any

import openai
import pytest
from azure.ai.inference import ChatCompletionsClient
from azure.core.credentials import AzureKeyCredential

from shared.runtime.processes import die_with_parent
from tests.support.dialects import DIALECTS
from tests.support.eventually import PATIENCE, wait_until
from tests.support.fleet import PATIENT, Fleet, fleet, free_port
from tests.support.fork_server import fork

READ_TIMEOUT = 6
"""nginx's proxy_read_timeout in seconds, whose default is 60. The streams are silent for longer."""
SILENCE = READ_TIMEOUT + 4
INTERVAL = 0.5
"""Seconds between two signs of life, instead of 15."""
OFTEN = (
    f"import sys, api.http.connection as c; c.PING_INTERVAL = {INTERVAL}; import cli.main; sys.exit(cli.main.main())"
)
SLOTS = 16
WORKER = ("--engine", "simulated", "--model", "sim", "--max-batch", str(SLOTS), "--sim-step", "0.1")
PROMPT = "[[tokens 60]]"
MESSAGES: list[Any] = [{"role": "user", "content": PROMPT}]
NGINX = """
daemon off; pid {folder}/pid; error_log /dev/stderr; events {{}}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{ listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{replica}; proxy_read_timeout {timeout}s; }} }}
}}
"""
"""Everything else is nginx's default."""


def launch(arguments: Sequence[str], output: IO[bytes], environment: dict[str, str]) -> Any:
    if arguments[0] != "api":
        return fork(arguments, output, environment)
    command = [sys.executable, "-c", OFTEN, *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, preexec_fn=die_with_parent
    )


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Fleet]:
    """A worker, and a replica behind nginx, whose port the clients use."""
    if shutil.which("nginx") is None:
        pytest.skip("needs nginx: apt-get install nginx")
    folder = tmp_path / "nginx"
    folder.mkdir()
    with fleet(tmp_path, lease=PATIENT, launch=launch) as running:
        running.worker(*WORKER)
        running.api("--first-byte-after", "1", "--queue-timeout", str(PATIENCE), "--max-wait", str(PATIENCE))
        replica, running.port = running.port, free_port()
        conf = folder / "conf"
        conf.write_text(NGINX.format(folder=folder, port=running.port, replica=replica, timeout=READ_TIMEOUT))
        with (folder / "log").open("wb") as log:
            command = ["nginx", "-e", "/dev/stderr", "-c", str(conf)]
            proxy = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)
        try:
            running.until(lambda: running.status("/live") == 200, "nginx to serve")
            yield running
        finally:
            proxy.terminate()
            proxy.wait(PATIENCE)


def by_openai(running: Fleet, on_text: Callable[[], None]) -> str:
    text = ""
    for chunk in running.client().chat.completions.create(model="sim", messages=MESSAGES, stream=True):
        if chunk.choices[0].delta.content:
            text += chunk.choices[0].delta.content
            on_text()
    return text


def by_openai_responses(running: Fleet, on_text: Callable[[], None]) -> str:
    with running.client().responses.stream(model="sim", input=PROMPT) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                on_text()
        return events.get_final_response().output_text


def by_anthropic(running: Fleet, on_text: Callable[[], None]) -> str:
    import anthropic

    client = anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{running.port}", api_key="none", max_retries=0, timeout=PATIENCE
    )
    with client, client.messages.stream(model="sim", messages=MESSAGES, max_tokens=1000) as events:
        for _ in events.text_stream:
            on_text()
        return events.get_final_text()


def by_azure(running: Fleet, on_text: Callable[[], None]) -> str:
    client = ChatCompletionsClient(f"http://127.0.0.1:{running.port}", AzureKeyCredential("none"), retry_total=0)
    text = ""
    with client:
        for update in client.complete(messages=MESSAGES, model="sim", stream=True):
            if update.choices and update.choices[0].delta.content:
                text += update.choices[0].delta.content
                on_text()
    return text


CLIENTS = (by_openai, by_openai_responses, by_anthropic, by_azure)

PATHS: dict[str, dict[str, Any]] = {
    tried.path: tried.body(PROMPT, "sim", **{tried.known.limit: 1000}) | {"stream": True} for tried in DIALECTS.values()
}
PATHS["/v1/responses#background"] = PATHS["/v1/responses"] | {"background": True}
COMMENT = b": keep-alive"
SIGNS = dict.fromkeys(PATHS, COMMENT) | {
    "/v1/messages": b'data: {"type":"ping"}',
    DIALECTS["azure"].path: b'"choices":[]',
    "/api/chat": b'"done":false,"message":{"role":"assistant","content":""}',
    "/api/generate": b'"response":""',
}


@contextmanager
def occupied(running: Fleet) -> Iterator[None]:
    """Occupy all slots of the worker."""
    body = {"model": "sim", "messages": [{"role": "user", "content": "[[tokens 4000]]"}], "n": SLOTS, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    with closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        with connection.getresponse() as response:
            assert response.read1()
            yield


def signs(path: str, text: bytes) -> int:
    return sum(SIGNS[path] in line for line in text.split(b"\n"))


class RawStream:
    """A stream over a connection of its own, read by a thread."""

    def __init__(self, running: Fleet, path: str, **headers: str) -> None:
        self.path = path
        self.text = b""
        self._running = running
        self._headers = headers | {"content-type": "application/json"}

    def read(self) -> "RawStream":
        connection = http.client.HTTPConnection("127.0.0.1", self._running.port, timeout=PATIENCE)
        with closing(connection):
            connection.request("POST", self.path.partition("#")[0], json.dumps(PATHS[self.path]), self._headers)
            with connection.getresponse() as response:
                assert response.status == 200, response.read()
                while piece := response.read1():
                    self.text += piece
        return self


def test_no_proxy_cuts_a_stream_that_waits_for_a_worker_at_its_start_or_in_the_middle(proxied: Fleet) -> None:
    writing = {client: Event() for client in CLIENTS}
    with ThreadPoolExecutor(len(PATHS) + len(CLIENTS)) as threads, ExitStack() as others:
        others.enter_context(occupied(proxied))
        streams = [RawStream(proxied, path) for path in PATHS]
        reading = [threads.submit(stream.read) for stream in streams]
        texts = [threads.submit(client, proxied, writing[client].set) for client in CLIENTS]
        time.sleep(SILENCE)
        assert not any(event.is_set() for event in writing.values())
        before = {stream.path: signs(stream.path, stream.text) for stream in streams}

        others.close()
        for client, event in writing.items():
            wait_until(event.is_set, f"text {client.__name__}", details=proxied.logs)
        proxied.processes[0].kill()
        time.sleep(SILENCE)
        in_the_middle = {stream.path: signs(stream.path, stream.text) - before[stream.path] for stream in streams}
        assert not any(one.done() for one in reading)
        assert not any(one.done() for one in texts)

        proxied.worker(*WORKER)
        assert len({text.result() for text in texts}) == 1
        for stream in reading:
            assert stream.result().text.rstrip().endswith((b"[DONE]", b"}")), stream.result().text
    assert min(before.values()) > 1, before
    assert min(in_the_middle.values()) > 1, in_the_middle
    whole = b"".join(stream.text for stream in streams if SIGNS[stream.path] is not COMMENT)
    assert COMMENT not in whole, "comments where clients accept none"


def test_a_refusal_has_its_status_until_the_first_byte_and_is_an_event_afterwards(proxied: Fleet) -> None:
    soon, late = {"x-queue-timeout": "0.2"}, {"x-queue-timeout": "3"}
    with occupied(proxied):
        sent = {"content-type": "application/json", **soon}
        status, headers, _ = proxied.request(
            "POST", "/v1/chat/completions", json.dumps(PATHS["/v1/chat/completions"]), sent
        )
        assert (status, "retry-after" in headers) == (503, True)
        with ThreadPoolExecutor(len(PATHS)) as threads:
            paths = [path for path in PATHS if not path.endswith("#background")]
            streams = list(threads.map(lambda path: RawStream(proxied, path, **late).read(), paths))
        for stream in streams:
            assert signs(stream.path, stream.text), stream.text
            words = (b"queue_timeout", b"overloaded_error", b"server_error", b'{"error":"')
            assert any(word in stream.text for word in words), stream.text
        sdk = proxied.client()
        with pytest.raises(openai.APIError, match="queue"):
            list(sdk.chat.completions.create(model="sim", messages=MESSAGES, stream=True, extra_headers=late))
        with sdk.responses.stream(model="sim", input="a", extra_headers=late) as events:
            assert [event.type for event in events] == ["response.created", "response.failed"]
