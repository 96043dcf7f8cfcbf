"""Running requests of a key end when it is revoked."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.dialects import DIALECTS
from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet, fleet

LONG = "[[tokens 100000]]"
CHAT = {"messages": [{"role": "user", "content": LONG}]}
ENDS = {
    "anthropic": '"type":"authentication_error"',
    "responses": '"type":"response.failed"',
    "ovms_responses": '"type":"response.failed"',
    "azure": ": error: The API key of this request",
    "ollama_chat": '{"error":"The API key of this request',
    "ollama_generate": '{"error":"The API key of this request',
}
"""The errors of dialects that have another than OpenAI's."""
LIMIT = {"completions": {"max_tokens": 100_000}, "ovms_completions": {"max_tokens": 100_000}}
STREAMS: list[tuple[str, dict[str, Any], str]] = [
    ("/openai/deployments/sim/chat/completions?api-version=2024-10-21", CHAT, '"code":"invalid_api_key"'),
    *(
        (tried.path, tried.body(LONG, "sim", **LIMIT.get(name, {})), ENDS.get(name, '"code":"invalid_api_key"'))
        for name, tried in DIALECTS.items()
    ),
]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet that is locked, with a context that no request fills in the time of a test."""
    with fleet(tmp_path_factory.mktemp("keyed")) as running:
        running.worker("--engine", "simulated", "--model", "sim=[[context 200000]]", "--sim-step", "0.01")
        running.key("create")
        running.api()
        yield running


def create(running: Fleet, *options: str) -> tuple[str, str]:
    """Create a key; return its id and its secret, which works."""
    known = {key["id"] for key in json.loads(running.key("list", "--json"))}
    secret = running.key("create", *options).splitlines()[-1]
    running.until(lambda: listed(running, secret) == 200, "the key to take effect")
    (key,) = {key["id"] for key in json.loads(running.key("list", "--json"))} - known
    return key, secret


def listed(running: Fleet, secret: str) -> int:
    return running.request("GET", "/v1/models", headers={"authorization": f"Bearer {secret}"})[0]


def begin(running: Fleet, secret: str, path: str, body: dict[str, Any]) -> http.client.HTTPResponse:
    """Send a streaming request; return its response after the first bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    headers = {"content-type": "application/json", "authorization": f"Bearer {secret}", "connection": "close"}
    connection.request("POST", path, json.dumps({"model": "sim", "stream": True} | body), headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.read(1)
    return response


def rest(response: http.client.HTTPResponse) -> str:
    """Read a response to its end, and close its connection."""
    with response:
        return response.read().decode()


def test_streams_end_with_the_dialects_error(keyed: Fleet) -> None:
    key, secret = create(keyed)
    other_id, other = create(keyed)
    going_on = begin(keyed, other, "/v1/chat/completions", CHAT)
    streams = [begin(keyed, secret, path, body) for path, body, _ in STREAMS]
    keyed.key("revoke", key)
    for stream, (path, _, error) in zip(streams, STREAMS, strict=True):
        assert error in rest(stream), path
    keyed.until(lambda: [one.get("used", 0) for one in keyed.workers()] == [1], "the slots to be free")
    assert going_on.read(1)
    keyed.key("revoke", other_id)
    rest(going_on)


def test_a_request_that_has_not_begun_gets_a_401(keyed: Fleet) -> None:
    key, secret = create(keyed)
    connection = http.client.HTTPConnection("127.0.0.1", keyed.port, timeout=PATIENCE)
    headers = {"content-type": "application/json", "x-api-key": secret, "connection": "close"}
    body = {"model": "sim", "max_tokens": 100_000} | CHAT
    connection.request("POST", "/v1/messages", json.dumps(body), headers)
    keyed.until(lambda: [one.get("used", 0) for one in keyed.workers()] == [1], "the request to run")
    keyed.key("revoke", key)
    response = connection.getresponse()
    assert (response.status, json.loads(rest(response))["error"]["type"]) == (401, "authentication_error")


def test_background_responses_end(keyed: Fleet) -> None:
    key, secret = create(keyed)
    headers = {"content-type": "application/json", "authorization": f"Bearer {secret}"}
    body = json.dumps({"model": "sim", "input": LONG, "background": True})
    status, _, answer = keyed.request("POST", "/v1/responses", body, headers)
    assert status == 200, answer
    keyed.until(lambda: [one.get("used", 0) for one in keyed.workers()] == [1], "the response to run")
    keyed.key("revoke", key)
    keyed.until(lambda: [one.get("used", 0) for one in keyed.workers()] == [0], "the slot to be free")
