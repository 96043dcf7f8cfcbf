"""Files through the official SDK and by hand: what is kept, for whom, and what is refused."""

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.support.fleet import Fleet, fleet

LIMIT = 3_000_000
CONTENT = b'{"custom_id": "1"}\r\n\x00\xff' * 1000


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A replica without workers, which files do not need."""
    with fleet(tmp_path_factory.mktemp("files")) as running:
        running.api("--api-keys", "none,other", "--max-file-bytes", str(LIMIT))
        yield running


@pytest.fixture
def client(target: Fleet) -> Iterator[openai.OpenAI]:
    """A client whose files are deleted afterwards."""
    client = target.client()
    yield client
    for file in client.files.list():
        client.files.delete(file.id)


def on_disk(target: Fleet) -> list[str]:
    return [name for _, _, names in os.walk(target.folder / "files") for name in names]


def test_the_life_of_a_file(client: openai.OpenAI, target: Fleet) -> None:
    before = int(time.time()) - 1
    made = client.files.create(
        file=("../in.jsonl", CONTENT), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert (made.object, made.bytes, made.filename, made.purpose) == ("file", len(CONTENT), "in.jsonl", "batch")
    assert made.created_at >= before
    assert made.expires_at == made.created_at + 3600
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == CONTENT
    assert on_disk(target) == [made.id]
    assert client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    assert on_disk(target) == []


def test_a_file_belongs_to_its_key(client: openai.OpenAI, target: Fleet) -> None:
    made = client.files.create(file=("a", b"x"), purpose="batch")
    other = client.with_options(api_key="other")
    assert list(other.files.list()) == []
    for use in (other.files.retrieve, other.files.content, other.files.delete):
        with pytest.raises(openai.NotFoundError):
            use(made.id)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").files.create(file=("a", b"x"), purpose="batch")


def test_an_upload_that_breaks_off_leaves_nothing(client: openai.OpenAI, target: Fleet) -> None:
    head = (
        "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer none\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 2000000\r\n\r\n"
        '--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    )
    with socket.create_connection(("127.0.0.1", target.port)) as connection:
        connection.sendall(head.encode() + b"x" * 1_000_000)
        target.until(lambda: on_disk(target), "the upload to begin")
        assert list(client.files.list()) == []
    target.until(lambda: on_disk(target) == [], "its traces to be gone")


def test_pages_of_other_sites_cannot_upload(client: openai.OpenAI, target: Fleet) -> None:
    for origin, status in (
        ("https://evil.example", 403),
        ("null", 403),
        (f"http://127.0.0.1:{target.port}", 200),
    ):
        form = b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        form += b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--x--\r\n'
        headers = {
            "content-type": "multipart/form-data; boundary=x",
            "origin": origin,
            "host": f"127.0.0.1:{target.port}",
            "authorization": "Bearer none",
        }
        answered, _, body = target.request("POST", "/v1/files", form, headers)
        assert answered == status, body
    status, headers, _ = target.request(
        "GET", f"/v1/files/{json.loads(body)['id']}/content", None, {"authorization": "Bearer none"}
    )
    assert (status, headers["content-type"]) == (200, "application/octet-stream")
    assert (headers["x-content-type-options"], headers["content-disposition"]) == ("nosniff", "attachment")


def test_memory_does_not_grow_with_the_file(empty_fleet: Fleet) -> None:
    running = empty_fleet
    api = running.api("--api-keys", "none")
    status = Path(f"/proc/{api.popen.pid}/status")

    def peak() -> int:
        return int(status.read_text().partition("VmHWM:")[2].split()[0])

    client = running.client()
    client.files.create(file=("small", bytes(1_000_000)), purpose="batch")
    before = peak()
    made = client.files.create(file=("large", bytes(150_000_000)), purpose="batch")
    assert client.files.content(made.id).read() == bytes(150_000_000)
    assert peak() - before < 50_000  # kB
