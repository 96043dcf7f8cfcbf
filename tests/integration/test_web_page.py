"""The web page's files, requests of pages of other origins, and the place in the queue, over real HTTP."""

import gzip
import http.client
import json
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from urllib.parse import urljoin

import pytest

from api.http.routes import PAGE_FOLDER
from api.page.static_files import load
from tests.support.eventually import PATIENCE
from tests.support.fleet import PATIENT, Fleet, fleet

MAX_BYTES = 300_000
"""Of all files, compressed."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ORIGIN = "https://app.example"
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, str]]:
    """A fleet with a key and one slot, that allows pages of one other origin."""
    with fleet(tmp_path_factory.mktemp("closed"), lease=PATIENT) as running:
        secret = running.key("create")
        running.worker("--engine", "simulated", "--model", "sim", "--max-batch", "1", "--sim-step", "0.01")
        running.api("--cors-origins", f"http://127.0.0.1:9, {ORIGIN}/")
        yield running, secret


def test_the_page_is_public_and_light(closed: tuple[Fleet, str]) -> None:
    running, _ = closed
    files = load(enabled=True)
    assert sum(len(file.compressed) for file in files.values()) <= MAX_BYTES
    for path, file in files.items():
        status, headers, body = running.request("GET", path)
        assert (status, body) == (200, file.body)
        assert headers["content-security-policy"] == CSP
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert headers["cache-control"] == "no-cache"
        assert "content-encoding" not in headers


def test_it_names_only_files_that_are_there() -> None:
    files = load(enabled=True)
    index = files["/"].body.decode()
    assert "<script>" not in index
    named = {f"/{name}" for name in re.findall(r'(?:href|src)="([^"]*)"', index)}
    for path, file in files.items():
        if path.endswith(".js"):
            named |= {
                urljoin(path, name)
                for name in re.findall(r'(?:from |import\(|new URL\()"(\.\.?/[^"]+)"', file.body.decode())
            }
    assert named <= files.keys()
    assert {path for path in files if path.endswith((".js", ".css"))} <= named


def test_every_module_that_the_first_view_needs_is_requested_at_once() -> None:
    """A chain of imports would cost one round trip for each of its links."""
    files = load(enabled=True)
    index = files["/"].body.decode()
    found, unread = set[str](), ["/web/page.js"]
    while unread:
        path = unread.pop()
        found.add(path)
        named = {urljoin(path, name) for name in re.findall(r'from "([^"]*)"', files[path].body.decode())}
        unread += named - found
    assert found == {f"/{name}" for name in re.findall(r'(?:modulepreload" href|module" src)="([^"]*)"', index)}


def test_the_page_can_be_installed() -> None:
    files = load(enabled=True)
    (named,) = re.findall(r'rel="manifest" href="([^"]*)"', files["/"].body.decode())
    manifest = json.loads(files[f"/{named}"].body)
    assert urljoin(f"/{named}", manifest["start_url"]) == "/"
    for icon in manifest["icons"]:
        assert files[urljoin(f"/{named}", icon["src"])].content_type == icon["type"]


def test_compression_and_revalidation(closed: tuple[Fleet, str]) -> None:
    running, _ = closed
    path = f"{PAGE_FOLDER}page.js"
    plain = running.request("GET", path, None, {"accept-encoding": "gzip;q=0, br"})
    packed = running.request("GET", path, None, {"accept-encoding": "br, gzip"})
    assert packed[1]["content-encoding"] == "gzip"
    assert gzip.decompress(packed[2]) == plain[2]
    assert packed[1]["vary"] == "accept-encoding, origin"
    assert packed[1]["etag"] != plain[1]["etag"]
    for _, headers, _ in (plain, packed):
        coding = {"accept-encoding": headers.get("content-encoding", "identity")}
        again = running.request("GET", path, None, {**coding, "if-none-match": f'"other", W/{headers["etag"]}'})
        assert (again[0], again[1]["etag"], again[2]) == (304, headers["etag"], b"")
        assert running.request("GET", path, None, {**coding, "if-none-match": '"other"'})[0] == 200


@pytest.mark.parametrize(
    "path", ["/web/", "/web/none.js", "/web/../api/main.py", "/web/%2e%2e/main.py", "/web/index.html"]
)
def test_nothing_else_is_served(closed: tuple[Fleet, str], path: str) -> None:
    running, secret = closed
    assert running.request("GET", path, None, {"api-key": secret})[0] == 404
    assert running.request("GET", path)[0] in (401, 404)


def test_pages_of_allowed_origins_may_ask(closed: tuple[Fleet, str]) -> None:
    running, secret = closed
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}
    status, headers, _ = running.request("OPTIONS", CHAT, None, {"origin": ORIGIN, **asks})
    assert (status, headers["access-control-allow-origin"]) == (204, ORIGIN)
    assert headers["access-control-allow-headers"] == "authorization,x-stainless-os"
    assert "POST" in headers["access-control-allow-methods"]
    for credentials, expected in (({}, 401), ({"api-key": secret}, 200)):
        status, headers, _ = running.request("GET", "/v1/models", None, {"origin": ORIGIN, **credentials})
        assert (status, headers["access-control-allow-origin"]) == (expected, ORIGIN)
        assert headers["vary"] == "origin"
    for origin in ("https://evil.example", "null", f"{ORIGIN}.evil.example"):
        status, headers, _ = running.request("OPTIONS", CHAT, None, {"origin": origin, **asks})
        assert status == 401
        assert not [name for name in headers if name.startswith("access-control-")]


def test_by_default_no_other_origin_may_and_the_page_can_be_left_out(empty_fleet: Fleet) -> None:
    empty_fleet.api("--no-web")
    asks = {"origin": ORIGIN, "access-control-request-method": "POST"}
    _, headers, _ = empty_fleet.request("OPTIONS", CHAT, None, asks)
    assert not [name for name in headers if name.startswith("access-control-")]
    status, _, body = empty_fleet.request("GET", "/")
    assert status == 404
    assert "Invalid URL" in json.loads(body)["error"]["message"]


def events(running: Fleet, text: str, secret: str) -> Generator[bytes]:
    """The lines of a stream that tells the place in the queue."""
    body = {"model": "sim", "messages": [{"role": "user", "content": text}], "stream": True}
    headers = {"content-type": "application/json", "api-key": secret, "x-queue-events": "true"}
    with closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)) as connection:
        connection.request("POST", CHAT, json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 200
        yield from (line.strip() for line in answer if line.strip())


def test_a_waiting_request_learns_its_place(closed: tuple[Fleet, str]) -> None:
    running, secret = closed
    first = events(running, "[[tokens 5000]]", secret)
    while not next(first).startswith(b"data: "):
        pass
    waiting = events(running, "[[tokens 3]]", secret)
    place = json.loads(next(waiting).removeprefix(b": "))["queue"]
    assert (place["ahead"], len(place["request"])) == (0, 32)
    behind = events(running, "[[refuse]]", secret)
    assert json.loads(next(behind).removeprefix(b": "))["queue"]["ahead"] == 1
    first.close()
    lines = list(waiting)
    assert [line for line in lines if line.startswith(b"data: ")][-1] == b"data: [DONE]"
    *_, error, done = behind
    assert "[[refuse]]" in json.loads(error.removeprefix(b"data: "))["error"]["message"]
    assert done == b"data: [DONE]"
