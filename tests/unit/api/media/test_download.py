"""Downloads of images: which hosts and addresses are asked, and what is accepted from them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import httpcore2
import pytest

from api.media import network
from api.media.data_url import MediaError
from api.media.download import DOWNLOADS_OF_TENANT, MAX_DOWNLOADS, Downloads
from shared.protocol.errors import ProblemKind, RequestRefused
from shared.runtime.settings import ApiSettings
from tests.support.eventually import PATIENCE, eventually

PNG = b"\x89PNG..."
LIMIT = 1000
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: %d\r\n\r\n%b"
OK = ANSWER % (len(PNG), PNG)
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True, scope="module")
def one_tls_context_and_patience() -> Iterator[None]:
    """Each downloader reads the system's certificates, which takes 50 ms. On a busy machine, files come late."""
    context = httpcore2.default_ssl_context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", lambda: context)
        patch.setattr("api.media.download.TIMEOUT", PATIENCE)
        yield


class Site:
    """A web server on this machine: the reply to each path, and the requests that it got."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.replies: dict[str, bytes] = {}
        self.asked: list[str] = []

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        running.asked.append(head)
        reply = running.replies.get(head.split()[1])
        if reply is None:
            await reader.read()
        else:
            writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    async with server:
        running = Site(server.sockets[0].getsockname()[1])
        yield running


Load = Callable[..., Coroutine[Any, Any, bytes]]


def downloads(**options: Any) -> Load:
    """Return a function that downloads a file for a tenant."""
    defaults: dict[str, Any] = {
        "media_domains": "*",
        "media_private_addresses": True,
        "max_media_bytes": 10 * LIMIT,
    }
    limit = options.pop("max_image_bytes", LIMIT)
    opened = Downloads(ApiSettings.model_construct(**(defaults | options)), max_image_bytes=limit)

    async def load(url: str, tenant: str = "a") -> bytes:
        with opened.request(tenant) as share:
            return await opened.download(url, share)

    return load


async def reason(url: str, **options: Any) -> str:
    """Return why the file at ``url`` is not downloaded."""
    with pytest.raises(MediaError) as error:
        await downloads(**options)(url)
    return str(error.value)


def redirect(url: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n".encode()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """The addresses of each host, for one look-up after another; the last ones stay."""
    known: dict[str, list[list[str]]] = {}

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        host = host.lower()
        if host not in known:
            raise socket.gaierror
        found = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr("api.media.lookups.socket.getaddrinfo", getaddrinfo)
    return known


async def test_a_file_is_downloaded(site: Site) -> None:
    site.replies["/a.png?size=1"] = OK
    load = downloads()
    assert await load(site.url("/a.png?size=1")) == PNG
    assert "accept-encoding: identity" in site.asked[0].lower()


@pytest.mark.parametrize(
    ("domains", "host", "allowed"),
    [
        ("", "example.org", False),
        ("example.org", "example.org", True),
        ("example.org", "EXAMPLE.org.", True),
        ("example.org", "www.example.org", False),
        ("example.org", "evilexample.org", False),
        ("example.org", "example.org.evil.com", False),
        ("*.example.org", "www.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "evilexample.org", False),
        ("other.net,*.example.org", "a.b.example.org", True),
        ("*", "anything.at.all", True),
    ],
)
async def test_only_allowed_hosts_are_asked(
    site: Site, names: dict[str, list[list[str]]], domains: str, host: str, allowed: bool
) -> None:
    names[host.lower()] = [["127.0.0.1"]]
    site.replies["/"] = OK
    load = downloads(media_domains=domains)
    if allowed:
        assert await load(site.url("/", host)) == PNG
    else:
        with pytest.raises(MediaError, match="--media-domains"):
            await load(site.url("/", host))
    assert bool(site.asked) == allowed


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:10.0.0.1", "64:ff9b:1::7f00:1", "fe80::1%eth0"])
async def test_addresses_that_are_not_public_are_not_asked(names: dict[str, list[list[str]]], address: str) -> None:
    names["example.org"] = [["93.184.216.34", address]]
    assert "not public" in await reason("http://example.org/a.png", media_private_addresses=False)


async def test_the_address_that_was_checked_is_asked(
    site: Site, names: dict[str, list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers differently the second time does not matter: there is no second time."""
    monkeypatch.setattr(network, "is_public", lambda address: address == "127.0.0.1")
    names["example.org"] = [["127.0.0.1"], ["10.0.0.1"]]
    site.replies["/"] = OK
    load = downloads(media_private_addresses=False)
    assert await load(site.url("/", "example.org")) == PNG
    assert len(names["example.org"]) == 1


async def test_every_address_of_a_host_is_tried(site: Site, names: dict[str, list[list[str]]]) -> None:
    names["example.org"] = [["127.0.0.2", "127.0.0.1"]]
    site.replies["/"] = OK
    load = downloads()
    assert await load(site.url("/", "example.org")) == PNG


async def test_three_redirects_are_followed(site: Site) -> None:
    site.replies |= {"/a": redirect("/b"), "/b": redirect(site.url("/c")), "/c": redirect("/d"), "/d": redirect("/e")}
    site.replies["/e"] = OK
    assert "more than 3 times" in await reason(site.url("/a"))
    assert await downloads()(site.url("/b")) == PNG


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("http://internal/", "'internal' is not among"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("ftp://127.0.0.1/", "scheme 'ftp'"),
        ("//user:password@127.0.0.1/", "user name"),
        ("", "nowhere"),
    ],
)
async def test_redirects_pass_the_same_checks(site: Site, place: str, part: str) -> None:
    site.replies["/"] = redirect(place)
    assert part in await reason(site.url("/"), media_domains="127.0.0.1")


async def test_a_redirect_to_a_private_address_is_not_followed(
    site: Site, names: dict[str, list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "is_public", lambda address: address == "127.0.0.1")
    names |= {"example.org": [["127.0.0.1"]], "metadata": [["169.254.169.254"]]}
    site.replies["/"] = redirect("http://metadata/latest")
    assert "not public" in await reason(site.url("/", "example.org"), media_private_addresses=False)


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        (ANSWER % (LIMIT + 1, bytes(LIMIT + 1)), "maximum of 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(10 * LIMIT), "maximum of 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "empty file"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "status 404"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1\r\n\r\nx", "content type 'text/html'"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", "can't be reached (RemoteProtocolError)"),
        (b"SSH-2.0\r\n", "can't be reached (RemoteProtocolError)"),
        (b"", "can't be reached (RemoteProtocolError)"),
    ],
)
async def test_what_is_wrong_with_a_response_is_said(site: Site, reply: bytes, part: str) -> None:
    site.replies["/"] = reply
    assert part in await reason(site.url("/"))


async def test_a_slow_response_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.media.download.TIMEOUT", 0.1)
    assert "within 0.1 s" in await reason(site.url("/silent"))


async def test_a_host_without_a_server_can_not_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    assert "can't be reached" in await reason(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("a.png", "scheme ''"),
        ("http:///a.png", "malformed"),
        ("http://host:99999/a.png", "malformed"),
        ("http://[::1/a.png", "malformed"),
        ("http://host/a b.png", "malformed"),
        ("http://host/\r\nx-injected: 1", "malformed"),
        ("http://größe/a.png", "malformed"),
        ("http://user:password@host/a.png", "user name"),
    ],
)
async def test_what_is_wrong_with_a_url_is_said(url: str, part: str) -> None:
    assert part in await reason(url)


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000 + OK, "too much besides the file"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: %b\r\n" % (b"y" * 1000) * 50 + OK[17:], "too much besides the file"),
        (CHUNKED + b"1\r\nx\r\n" * 1000, "too many small parts"),
        (CHUNKED + (b"64;" + b"x" * 4000 + b"\r\n" + bytes(100) + b"\r\n") * 9, "too much besides the file"),
    ],
    ids=["interim responses", "a long head", "chunks of one byte", "chunk extensions"],
)
async def test_a_server_can_not_send_much_besides_the_file(site: Site, reply: bytes, part: str) -> None:
    site.replies["/"] = reply
    assert part in await reason(site.url("/"))


async def test_a_file_may_come_in_chunks(site: Site) -> None:
    content = bytes(100_000)
    parts = [content[at : at + 1000] for at in range(0, len(content), 1000)]
    site.replies["/"] = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    assert await downloads(max_image_bytes=len(content), max_media_bytes=len(content))(site.url("/")) == content


async def test_other_tasks_run_while_a_server_always_has_data(site: Site) -> None:
    """Work between two turns of the event loop is bounded by bytes: here by the reads that it takes."""
    site.replies["/"] = b"HTTP/1.1 100 Continue\r\n\r\n" * 600 + OK
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await downloads()(site.url("/")) == PNG
    counting.cancel()
    assert turns > 600 * 25 / 1024


async def test_tenants_that_download_leave_places_to_others(site: Site) -> None:
    site.replies["/"] = OK
    load = downloads()
    tenants = MAX_DOWNLOADS // DOWNLOADS_OF_TENANT - 1
    async with asyncio.TaskGroup() as slow:
        tasks = [
            slow.create_task(load(site.url("/slow"), str(tenant)))
            for tenant in range(tenants)
            for _ in range(MAX_DOWNLOADS)
        ]
        await eventually(lambda: len(site.asked) == tenants * DOWNLOADS_OF_TENANT, "the slow downloads to start")
        assert await load(site.url("/"), "another") == PNG
        assert len(site.asked) == tenants * DOWNLOADS_OF_TENANT + 1
        for task in tasks:
            task.cancel()


async def test_a_download_without_a_place_is_refused_with_a_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.media.download.TIMEOUT", 0.2)
    load = downloads()
    tasks = [asyncio.create_task(load(site.url("/slow"))) for _ in range(3 * DOWNLOADS_OF_TENANT)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    served = [result for result in results if isinstance(result, MediaError)]
    refused = [result for result in results if isinstance(result, RequestRefused)]
    assert len(served) + len(refused) == len(tasks)
    assert len(served) >= DOWNLOADS_OF_TENANT
    assert {(one.problem.kind, one.problem.retry_after) for one in refused} <= {(ProblemKind.QUEUE_FULL, 1.0)}
