"""The WebSocket mode of the Responses API, by OpenAI's SDK and by a plain client, through a simulated fleet."""

import http.client
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from shared.redis import keys
from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet, fleet

TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")
SMALL = 4096
"""The maximum size of a body at the second replica."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One worker and one replica whose bodies are small."""
    with fleet(tmp_path_factory.mktemp("fleet")) as made:
        made.worker()
        made.api("--max-body", str(SMALL), "--cors-origins", "https://app.example")
        yield made


def open_socket(fleet: Fleet, **options: Any) -> ClientConnection:
    connection: ClientConnection = connect(
        f"ws://127.0.0.1:{fleet.port}/v1/responses", open_timeout=PATIENCE, proxy=None, **options
    )
    return connection


@pytest.fixture
def opened(running: Fleet) -> Iterator[ClientConnection]:
    with open_socket(running) as connection:
        yield connection


def send(connection: ClientConnection, **fields: Any) -> None:
    body = {"type": "response.create", "model": "sim", "store": False, "input": "hello", "max_output_tokens": 5}
    connection.send(json.dumps(body | fields))


def receive(connection: ClientConnection) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(connection.recv(PATIENCE))
    return event


def turn(connection: ClientConnection, **fields: Any) -> list[dict[str, Any]]:
    """Return the events of one response."""
    send(connection, **fields)
    events = [receive(connection)]
    while events[-1]["type"] not in TERMINAL:
        events.append(receive(connection))
    return events


def answer(connection: ClientConnection, **fields: Any) -> dict[str, Any]:
    """Return one response."""
    response: dict[str, Any] = turn(connection, **fields)[-1]["response"]
    return response


def error(connection: ClientConnection, **fields: Any) -> tuple[int, str, str | None]:
    """Return the status, code and parameter of one error."""
    (event,) = turn(connection, **fields)
    return event["status"], event["error"]["code"], event["error"]["param"]


def closed(connection: ClientConnection) -> int | None:
    """Wait until the server closes; return its code."""
    with suppress(ConnectionClosed):
        while True:
            connection.recv(PATIENCE)
    return connection.close_code


def test_events_are_those_of_a_stream(opened: ClientConnection, running: Fleet) -> None:
    events = turn(opened)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    with running.client() as client:
        fields = client.responses.create(model="sim", input="hello", store=False, max_output_tokens=5, stream=True)
        assert [event.type for event in fields] == [event["type"] for event in events]


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")  # The SDK's use.
def test_by_the_sdk(running: Fleet) -> None:
    client = running.client()
    options: Any = {"proxy": None}
    with client.responses.connect(websocket_connection_options=options) as connection:
        connection.response.create(model="sim", input="hello", max_output_tokens=5)
        for event in connection:
            if event.type == "response.incomplete":
                break
        assert event.type == "response.incomplete"
        assert client.responses.retrieve(event.response.id).output_text == event.response.output_text
        connection.response.create(model="none", input="hello")
        assert next(iter(connection)).type == "error"


def test_responses_are_made_one_after_the_other(opened: ClientConnection) -> None:
    for number in range(3):
        send(opened, metadata={"number": str(number)})
    numbers = []
    for _ in range(3):
        while (event := receive(opened))["type"] not in TERMINAL:
            pass
        numbers.append(event["response"]["metadata"]["number"])
    assert numbers == ["0", "1", "2"]


def test_a_response_that_is_not_stored_is_continued(opened: ClientConnection, running: Fleet) -> None:
    first = answer(opened)
    second = answer(opened, previous_response_id=first["id"])
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    third = answer(opened, previous_response_id=second["id"])
    assert third["usage"]["input_tokens"] > second["usage"]["input_tokens"]
    unknown = 400, "previous_response_not_found", "previous_response_id"
    assert error(opened, previous_response_id=second["id"]) == unknown
    # The newest is still known.
    assert error(opened, previous_response_id=third["id"], store=True) == (400, "invalid_value", "store")
    with open_socket(running) as other:
        assert error(other, previous_response_id=third["id"]) == unknown


def test_a_stored_response_is_continued_anywhere(opened: ClientConnection, running: Fleet) -> None:
    first = answer(opened, store=True)
    with open_socket(running) as other:
        assert answer(other, previous_response_id=first["id"])["status"] == "incomplete"


def test_a_failed_continuation_evicts(opened: ClientConnection) -> None:
    first = answer(opened)
    output = {"type": "function_call_output", "call_id": "call_none", "output": "42"}
    assert error(opened, previous_response_id=first["id"], input=[output])[0] == 400
    assert error(opened, previous_response_id=first["id"])[1] == "previous_response_not_found"


def test_a_conversation_that_is_too_large_is_not_kept(opened: ClientConnection) -> None:
    first = answer(opened, input="a" * (SMALL - 500))
    assert answer(opened, previous_response_id=first["id"], input="b" * 500)["status"] == "incomplete"
    second = answer(opened, previous_response_id=answer(opened, input="a" * (SMALL - 500))["id"], input="b" * 1000)
    assert error(opened, previous_response_id=second["id"])[1] == "previous_response_not_found"


def test_a_response_without_output_is_continued(opened: ClientConnection) -> None:
    warm = answer(opened, generate=False, instructions="Be brief.", input="[[tokens 3]]")
    assert (warm["status"], warm["output"], warm["usage"]["output_tokens"]) == ("completed", [], 0)
    after = answer(opened, previous_response_id=warm["id"])
    assert after["usage"]["input_tokens"] > answer(opened)["usage"]["input_tokens"]
    assert error(opened, generate=False, model="none") == (404, "model_not_found", None)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"type": "response.steer"}, (400, "invalid_value", "type")),
        ({"background": True}, (400, "unsupported_parameter", "background")),
        ({"stream": False}, (400, "unsupported_parameter", "stream")),
        ({"stream_id": "a"}, (400, "unsupported_parameter", "stream_id")),
        ({"generate": "no"}, (400, "invalid_request_error", "generate")),
        ({"temperature": 3}, (400, "decimal_above_max_value", "temperature")),
        ({"model": "none"}, (404, "model_not_found", None)),
        ({"input": "[[refuse]]"}, (400, "invalid_request_error", None)),
    ],
)
def test_an_error_keeps_the_connection(
    opened: ClientConnection, fields: dict[str, Any], expected: tuple[int, str, str | None]
) -> None:
    assert error(opened, **fields) == expected
    assert answer(opened)["status"] == "incomplete"


def test_what_is_not_json_is_an_error(opened: ClientConnection) -> None:
    for text in ("{", "[]", "", '{"type": "response.create", "type": "response.create"}'):
        opened.send(text)
        assert receive(opened)["status"] == 400
    assert answer(opened)["status"] == "incomplete"


def test_a_message_that_is_too_large_closes_its_connection_only(running: Fleet, opened: ClientConnection) -> None:
    with open_socket(running) as other:
        send(other, input="a" * SMALL)
        assert closed(other) == 1009
    with open_socket(running) as other:
        other.send(["a" * 1000] * 5)
        assert closed(other) == 1009
    assert answer(opened)["status"] == "incomplete"


def test_binary_messages_and_floods_close_the_connection(running: Fleet) -> None:
    with open_socket(running) as binary:
        binary.send(b"{}")
        assert closed(binary) == 1003
    with open_socket(running) as many:
        for _ in range(30):
            send(many, input="[[tokens 5000]]", max_output_tokens=5000)
        assert closed(many) == 1008
    running.until(lambda: slots(running) == 0, "the slots to be free")


def test_the_handshake_is_checked(running: Fleet) -> None:
    assert handshake(running)[0] == 101
    assert handshake(running, {"Sec-WebSocket-Version": "8"})[0] == 400
    assert handshake(running, {"Sec-WebSocket-Key": "short"})[0] == 400
    assert handshake(running, {"Content-Length": "2"}, b"{}")[0] == 400
    assert handshake(running, body=b"\x81\x80\0\0\0\0")[0] == 400
    assert handshake(running, {"Host": "evil.example"})[0] == 421
    assert handshake(running, {"Upgrade": "h2c"})[0] == 405
    assert running.request("GET", "/v1/responses")[0] == 405


def test_pages_of_other_sites_are_refused(running: Fleet) -> None:
    status, body = handshake(running, {"Origin": "https://evil.example"})
    assert (status, json.loads(body)["error"]["code"]) == (403, "origin_not_allowed")
    assert handshake(running, {"Origin": "null"})[0] == 403
    assert handshake(running, {"Origin": "https://app.example"})[0] == 101
    assert handshake(running, {"Origin": f"http://127.0.0.1:{running.port}"})[0] == 101


def handshake(fleet: Fleet, headers: dict[str, str] | None = None, body: bytes = b"") -> tuple[int, bytes]:
    """Return the status and the body of the response to a handshake."""
    fields = {
        "Host": f"127.0.0.1:{fleet.port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    lines = [f"{name}: {value}" for name, value in (fields | (headers or {})).items()]
    with socket.create_connection(("127.0.0.1", fleet.port), PATIENCE) as connection:
        connection.sendall("\r\n".join(["GET /v1/responses HTTP/1.1", *lines, "", ""]).encode() + body)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, b"" if response.status == 101 else response.read()


def test_a_client_that_leaves_frees_its_slot(running: Fleet) -> None:
    for polite in (True, False):
        with open_socket(running) as connection:
            send(connection, input="[[tokens 5000]]", max_output_tokens=5000)
            running.until(lambda: slots(running) == 1, "the request to run")
            if not polite:
                connection.socket.shutdown(socket.SHUT_RDWR)
        running.until(lambda: slots(running) == 0, "the slot to be free")


def slots(fleet: Fleet) -> int:
    with fleet.redis() as store:
        return int(store.zcard("vinoqueue:inflight:sim"))


def test_pings_are_answered_while_a_response_is_sent(opened: ClientConnection) -> None:
    send(opened, input="[[tokens 300]]", max_output_tokens=300)
    ping = opened.ping()
    assert ping.wait(PATIENCE)
    text = ""
    while (event := receive(opened))["type"] not in TERMINAL:
        text += event.get("delta", "")
    assert event["response"]["output"][0]["content"][0]["text"] == text
    assert event["response"]["usage"]["output_tokens"] == 300


def test_a_worker_that_dies_loses_no_text_and_sigterm_drains(tmp_path: Any) -> None:
    with fleet(tmp_path) as running:
        first = running.worker()
        api = running.api()
        with open_socket(running) as connection, open_socket(running) as idle:
            whole = answer(connection, input="[[tokens 300]]", max_output_tokens=300)
            send(connection, input="[[tokens 300]]", max_output_tokens=300)
            while receive(connection)["type"] != "response.output_text.delta":
                pass
            running.start("worker", *first.arguments[1:])
            first.kill()
            while (event := receive(connection))["type"] not in TERMINAL:
                pass
            assert event["response"]["output"][0]["content"] == whole["output"][0]["content"]
            send(connection, input="[[tokens 300]]", max_output_tokens=300)
            while receive(connection)["type"] != "response.output_text.delta":
                pass
            api.signal(signal.SIGTERM)
            while (event := receive(connection))["type"] not in TERMINAL:
                pass
            assert event["response"]["output"][0]["content"] == whole["output"][0]["content"]
            assert closed(connection) == 1001
            assert closed(idle) == 1001
        assert api.popen.wait(PATIENCE) == 0


def test_keys(running: Fleet) -> None:
    headers = {"Authorization": f"Bearer {running.key('create', '--name', 'first')}"}
    running.until(lambda: running.status("/v1/models") == 401, "keys to be required")
    with pytest.raises(InvalidStatus) as caught:
        open_socket(running)
    assert caught.value.response.status_code == 401
    with open_socket(running, additional_headers=headers) as connection:
        assert answer(connection)["status"] == "incomplete"
        with running.redis() as store:
            (made,) = store.hkeys(keys.API_KEYS)
            running.key("create", "--name", "second")
            store.hdel(keys.API_KEYS, made)
        running.until(lambda: error_or_answer(connection) == 401, "the key to be refused")


def error_or_answer(connection: ClientConnection) -> int:
    status: int = turn(connection)[-1].get("status", 200)
    return status
