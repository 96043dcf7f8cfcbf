"""HTTP as clients of other languages, gateways and browsers send it."""

import gzip
import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.security.raw import CHAT, HELLO, chunks, connect, head, post, read_answer
from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

OFFER = ("Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA")
JDK_17 = (
    b"POST /v1/chat/completions HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 85\r\n"
    b"Host: 127.0.0.1:37437\r\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\nUpgrade: h2c\r\n"
    b"User-Agent: Java-http-client/17.0.15\r\nContent-Type: application/json\r\n\r\n"
    b'{"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}'
)
"""What the HttpClient of JDK 17.0.15 sends by default, as recorded."""

JAVA = """
import java.net.URI;
import java.net.http.*;

public class Chat {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int i = 0; i < 2; i++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(arguments[1])).build();
            HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(response.statusCode() + " " + response.body());
        }
    }
}
"""


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def test_the_offer_of_a_jdk_to_upgrade_is_ignored(session_fleet: Fleet) -> None:
    with connect(session_fleet) as connection:
        for size in (len(JDK_17), 400, 1):  # The rest of the body in later reads, and all of it byte by byte.
            for start in range(0, len(JDK_17), size):
                connection.sendall(JDK_17[start : start + size])
            answer = read_answer(connection)
            assert status(answer) == 200, answer


@pytest.mark.parametrize(
    "offer",
    [
        (*OFFER, "Upgrade: h2c"),
        ("Connection: close, upgrade", "Upgrade: h2c"),
        ("Proxy-Connection: Upgrade", "Upgrade: TLS/1.0"),
        ("Connection: upgrade", "Connection: keep-alive", "Upgrade: websocket, h2c"),
        ("Connection: upupgradegrade, upgrade", "Upgrade: other"),
    ],
)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_no_offer_to_upgrade_takes_the_body(session_fleet: Fleet, offer: tuple[str, ...], version: str) -> None:
    with connect(session_fleet) as connection:
        connection.sendall(post(HELLO, *offer, version=version))
        answer = read_answer(connection)
        assert status(answer) == 200, answer
        if "close" in offer[0]:
            assert connection.recv(1) == b""


def test_a_client_with_an_offer_is_told_to_continue(session_fleet: Fleet) -> None:
    sent, _, body = post(HELLO, *OFFER, "Upgrade: h2c", "Expect: 100-continue").partition(b"\r\n\r\n")
    with connect(session_fleet) as connection:
        connection.sendall(sent + b"\r\n\r\n")
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert status(read_answer(connection)) == 200


def test_a_chunked_body_after_an_offer_is_read(session_fleet: Fleet) -> None:
    body = json.dumps(HELLO).encode()
    lines = ("Content-Type: application/json", "Transfer-Encoding: chunked", *OFFER, "Upgrade: h2c")
    with connect(session_fleet) as connection:
        connection.sendall(head("POST", CHAT, *lines) + chunks([body[:9], body[9:], b""]))
        assert status(read_answer(connection)) == 200


def test_a_jdk_is_served(session_fleet: Fleet, tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK: apt-get install default-jdk-headless")
    source = tmp_path / "Chat.java"
    source.write_text(JAVA)
    url = f"http://127.0.0.1:{session_fleet.port}{CHAT}"
    done = subprocess.run(
        ["java", str(source), url, json.dumps(HELLO)], capture_output=True, text=True, timeout=10 * PATIENCE, check=True
    )
    lines = done.stdout.splitlines()
    assert [line[:4] for line in lines] == ["200 ", "200 "], done.stdout


def test_curl_with_http2_is_served(session_fleet: Fleet) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl: apt-get install curl")
    url, body = f"http://127.0.0.1:{session_fleet.port}{CHAT}", json.dumps(HELLO)
    command = ["curl", "-s", "--http2", "-H", "content-type: application/json", "-d", body, url, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.count('"chat.completion"') == 2, done.stdout


def test_a_wrong_method_with_an_offer_is_405_and_a_websocket_426(session_fleet: Fleet) -> None:
    offers = {"h2c": 405, "h2c, websocket": 426, "WebSocket": 426}
    for offer, expected in offers.items():
        asked = {"connection": "upgrade", "upgrade": offer}
        answered, headers, _ = session_fleet.request("GET", "/v1/messages", headers=asked)
        assert (answered, headers["allow"]) == (expected, "OPTIONS, POST")
        assert headers.get("upgrade") == ("HTTP/1.1" if expected == 426 else None)


@pytest.mark.parametrize("path", [CHAT, "/v1/responses/input_tokens", "/v1/messages"])
def test_a_byte_order_mark_before_a_body_is_ignored(session_fleet: Fleet, path: str) -> None:
    body = {"model": "sim", "max_tokens": 2} | ({"input": "a"} if "input" in path else {"messages": HELLO["messages"]})
    if "input" in path:
        del body["max_tokens"]
    sent = b"\xef\xbb\xbf" + json.dumps(body).encode()
    answered, _, answer = session_fleet.request("POST", path, sent, {"content-type": "application/json"})
    assert answered == 200, answer


CODED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": lambda data: zlib.compress(data, wbits=-15),
    "zstd": zstd.compress,
    "identity, ZSTD": zstd.compress,
    "": bytes,
    "identity": bytes,
}


def coded(fleet: Fleet, coding: str, body: bytes, path: str = CHAT) -> tuple[int, dict[str, str], bytes]:
    return fleet.request("POST", path, body, {"content-type": "application/json", "content-encoding": coding})


@pytest.mark.parametrize("coding", CODED)
def test_bodies_are_decoded(session_fleet: Fleet, coding: str) -> None:
    body = CODED[coding](json.dumps(HELLO).encode())
    assert coded(session_fleet, coding, body)[0] == 200
    text = CODED[coding](json.dumps({"model": "sim", "input": "hello"}).encode())
    assert coded(session_fleet, coding, text, "/v1/responses/input_tokens")[0] == 200


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_the_maximum_size_is_that_of_the_decoded_body(session_fleet: Fleet, coding: str) -> None:
    assert coded(session_fleet, coding, CODED[coding](b" " * 100_000_000))[0] == 413
    whole = CODED[coding](json.dumps(HELLO).encode())
    for damaged in (whole[:-1], whole + b"x", b"", b"{}"):
        assert coded(session_fleet, coding, damaged)[0] == 400


@pytest.mark.parametrize("coding", ["br", "compress", "gzip, zstd", "x" * 1000])
def test_an_unknown_coding_is_refused_with_those_that_are_served(session_fleet: Fleet, coding: str) -> None:
    status_, headers, _ = coded(session_fleet, coding, b"{}")
    assert (status_, headers["accept-encoding"]) == (415, "gzip, deflate, zstd")
