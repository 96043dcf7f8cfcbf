"""Web pages that reach for an API on the visitor's own machine, and requests that servers read differently."""

import json

import pytest

from tests.security.raw import CHAT, HELLO, exchange, head, post
from tests.support.fleet import Fleet
from tests.support.fleet_fixture import fleet_fixture

FORM_TYPES = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"]
"""What a page can send to another site without its consent."""


target = fleet_fixture()
"""A replica on a loopback address."""


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def error(answer: bytes) -> dict[str, object]:
    parsed: dict[str, object] = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    return parsed


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v3/chat/completions", f"{CHAT}/chatcmpl-1"])
@pytest.mark.parametrize("content_type", ["", *FORM_TYPES, "application/jsonx", "application/json-patch+json"])
def test_a_body_must_be_declared_as_json(target: Fleet, path: str, content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    answered, _, body = target.request("POST", path, json.dumps(HELLO), headers)
    assert (answered, json.loads(body)["error"]["code"]) == (415, "unsupported_content_type")
    assert "Content-Type: application/json" in json.loads(body)["error"]["message"]


def test_azure_has_its_own_form_of_that(target: Fleet) -> None:
    path = "/chat/completions?api-version=2024-05-01-preview"
    answered, headers, body = target.request("POST", path, json.dumps(HELLO), {})
    assert (answered, headers["x-ms-error-code"]) == (415, "unsupported_media_type")
    assert json.loads(body)["status"] == 415


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json;"])
def test_parameters_and_case_of_the_type_do_not_matter(target: Fleet, content_type: str) -> None:
    assert target.request("POST", CHAT, json.dumps(HELLO), {"content-type": content_type})[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"]
)
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/openapi.json", "/v1/none"])
def test_other_names_of_a_loopback_address_are_refused(target: Fleet, host: str, path: str) -> None:
    answered, _, body = target.request("GET", path, None, {"host": host})
    assert (answered, json.loads(body)["error"]["code"]) == (421, "host_not_allowed")
    assert "--allowed-hosts" in json.loads(body)["error"]["message"]


def test_probes_may_use_any_name(target: Fleet) -> None:
    for path in ("/live", "/ready", "/ready/replica", "/health"):
        assert target.request("GET", path, None, {"host": "pod-1.internal:8000"})[0] == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "a.localhost", "127.0.0.1:80", "[::1]:8000", "10.1.2.3"])
def test_loopback_names_and_addresses_are_allowed(target: Fleet, host: str) -> None:
    assert target.request("GET", "/v1/models", None, {"host": host})[0] == 200


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Host: localhost", "Host: localhost"),
        ("Host: localhost", "Host: evil.example"),
        ("Host:",),
        ("Host: a b",),
        ("Host: localhost/",),
        ("Host: localhost@evil.example",),
        ("Host: localhost, evil.example",),
        ("Host: [::1",),
        ("Host: l\xf6calhost",),
    ],
)
@pytest.mark.parametrize("path", ["/live", "/v1/models"])
def test_a_request_needs_one_valid_host(target: Fleet, path: str, lines: tuple[str, ...]) -> None:
    request = "\r\n".join((f"GET {path} HTTP/1.1", "Connection: close", *lines, "", "")).encode("latin-1")
    answer = exchange(target, request)
    assert status(answer) == 400
    assert "Host" in str(error(answer)["message"])


def test_hosts_of_ones_own(empty_fleet: Fleet) -> None:
    empty_fleet.api("--allowed-hosts", "llm.example, Other.example.")
    for host, expected in (
        ("llm.example", 200),
        ("LLM.example:443", 200),
        ("other.example", 200),
        ("llm.example.", 200),
        ("127.0.0.1", 200),
        ("localhost", 421),
        ("evil.example", 421),
    ):
        assert empty_fleet.request("GET", "/v1/models", None, {"host": host})[0] == expected, host


@pytest.mark.parametrize("options", [("--allowed-hosts", "*"), ("--host", "0.0.0.0")])
def test_any_host(empty_fleet: Fleet, options: tuple[str, ...]) -> None:
    empty_fleet.api(*options)
    assert empty_fleet.request("GET", "/v1/models", None, {"host": "any.example"})[0] == 200


@pytest.mark.parametrize("path", ["/v1//models", "//v1/models", "/v1/models//sim", "/v1/models/"])
def test_no_redirect_to_the_host_that_the_client_names(target: Fleet, path: str) -> None:
    answer = exchange(target, head("GET", path, "Connection: close"))
    assert status(answer) in (200, 404)
    assert b"location" not in answer.lower()


@pytest.mark.parametrize("host", [(), ("Host: localhost",), ("Host:",)])
def test_http_1_0_has_no_chunks(target: Fleet, host: tuple[str, ...]) -> None:
    body = json.dumps({**HELLO, "stream": True}).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: keep-alive", *host)
    answer = exchange(target, "\r\n".join((f"POST {CHAT} HTTP/1.0", *lines, "", "")).encode() + body)
    head_lines, _, streamed = answer.lower().partition(b"\r\n\r\n")
    assert status(answer) == 200
    assert b"transfer-encoding" not in head_lines
    assert b"connection: close" in head_lines
    assert streamed.startswith(b"data: {")
    assert streamed.endswith(b"data: [done]\n\n")


def test_other_answers_to_http_1_0(target: Fleet) -> None:
    assert b"content-length" in exchange(target, post(HELLO, version="1.0")).lower()
    assert exchange(target, b"GET /live HTTP/1.0\r\n\r\n").endswith(b'{"status":"ok"}')
    assert exchange(target, b"GET /v1/models HTTP/1.0\r\nhost: evil.example\r\n\r\n").startswith(b"HTTP/1.1 421")


@pytest.mark.parametrize("version", ["0.9", "2.0", "1.2"])
def test_other_versions_of_http(target: Fleet, version: str) -> None:
    assert status(exchange(target, head("GET", "/live", version=version))) in (400, 505)
