"""Files and batches in S3, on a real server of its API."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from obstore.store import S3Store

from api.files.folder import storage_root
from api.files.s3 import S3Root, S3Storage
from api.files.storage import FilesDirError
from shared.runtime.processes import module_command
from tests.support.batches import chat_line, ended, results, submit
from tests.support.fleet import Fleet, Process, fleet
from tests.support.s3 import BUCKET, S3Server, s3_server

LINES = 200
TOKENS = 20
SLOW = ("--engine", "simulated", "--model", "sim", "--max-batch", "8", "--sim-step", "0.01")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def storage(server: S3Server) -> Iterator[S3Storage]:
    """An empty storage."""
    root = S3Root(f"s3://{BUCKET}/unit/")
    root.check()
    root.create("folder")
    found = root.storage("folder")
    yield found
    for entry in found.names():
        found.remove(entry.name)
    root.remove("folder")
    assert server.objects() == []


def put(storage: S3Storage, name: str, content: bytes) -> None:
    writer = storage.create()
    try:
        writer.write(content)
        writer.commit(name)
    finally:
        writer.discard()


def names(storage: S3Storage) -> list[str]:
    return [entry.name for entry in storage.names()]


def read_local(storage: S3Storage, name: str) -> bytes:
    with storage.open_local(name) as file:
        return file.read()


def test_a_file_is_written_read_and_deleted(storage: S3Storage, server: S3Server) -> None:
    content = os.urandom(20_000_001)  # several parts of a multipart upload, and several requests to read
    put(storage, "file-1", content)
    put(storage, "file-2", b"")
    assert names(storage) == ["file-1", "file-2"]
    with storage.open("file-1") as file:
        assert file.read(10) == content[:10]
        assert file.read() == content[10:]
    with storage.open_local("file-1") as file:
        assert os.pread(file.fileno(), 100, 15_000_000) == content[15_000_000:15_000_100]
    assert read_local(storage, "file-2") == b""
    storage.remove("file-1")
    storage.remove("file-1")
    for use in (storage.open, storage.open_local):
        with pytest.raises(FileNotFoundError):
            use("file-1")
    assert names(storage) == ["file-2"]


def test_an_upload_that_breaks_off_leaves_nothing(storage: S3Storage, server: S3Server) -> None:
    writer = storage.create()
    writer.write(bytes(20_000_000))
    writer.discard()
    assert (names(storage), server.uploads()) == ([], 0)


def test_a_file_that_grows(storage: S3Storage) -> None:
    storage.write_at("batch_1.5", 0, b"one")
    storage.write_at("batch_1.5", 3, b"two")
    storage.write_at("batch_1.5", 3, b"two")  # repeated after an error
    put(storage, "file-1", b"x")
    assert names(storage) == ["batch_1.5", "file-1"]
    assert read_local(storage, "batch_1.5") == b"onetwo"
    storage.remove("batch_1.5")
    assert names(storage) == ["file-1"]


def test_parts_of_lost_writes_are_not_read(storage: S3Storage) -> None:
    for offset, data in ((0, b"old"), (3, b"old"), (6, b"old")):
        storage.write_at("batch_1.5", offset, data)
    for offset, data in ((0, b"news"), (4, b"!")):  # another claim of the same epoch, from a store that went back
        storage.write_at("batch_1.5", offset, data)
    assert read_local(storage, "batch_1.5") == b"news!"


@pytest.mark.parametrize("name", ["../a", "a/b", "", ".folder"])
def test_names_never_leave_the_folder(storage: S3Storage, name: str) -> None:
    for use in (storage.open, storage.open_local, storage.remove):
        with pytest.raises(ValueError, match="not the name"):
            use(name)


def test_a_folder_that_is_not_there(server: S3Server) -> None:
    with pytest.raises(FileNotFoundError, match=f"s3://{BUCKET}/unit/other is missing"):
        S3Root(f"s3://{BUCKET}/unit").storage("other")


def test_a_bucket_that_is_not_there_is_no_missing_file(server: S3Server) -> None:
    storage = S3Storage(S3Store("nowhere", client_options={"allow_http": True}), "folder")
    with pytest.raises(OSError, match="NoSuchBucket") as error:
        storage.write_at("batch_1.5", 0, b"one")
    assert not isinstance(error.value, FileNotFoundError)


@pytest.mark.parametrize("url", ["s3://", "s3:bucket", "s3:///prefix", "s3://No_Bucket/x"])
def test_malformed_urls_are_refused(url: str) -> None:
    with pytest.raises(FilesDirError, match=re.escape(url)):
        storage_root(url)


def test_a_replica_without_its_bucket_does_not_start(server: S3Server, tmp_path: Path) -> None:
    command = module_command("cli.main", "api", "--port", "0", "--redis-url", "redis://127.0.0.1:1/0")
    done = subprocess.run([*command, "--files-dir", "s3://nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "s3://nowhere can't be used as --files-dir" in done.stderr
    assert "NoSuchBucket" in done.stderr
    assert "Does the bucket exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "api.files.s3")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(FilesDirError, match="extra 's3'"):
        storage_root("s3://bucket")


class Rig:
    """A replica whose files are in the bucket, and a worker."""

    def __init__(self, running: Fleet, server: S3Server) -> None:
        self.fleet = running
        self.server = server
        running.worker(*SLOW)
        self.replica = self.start_replica()

    def start_replica(self) -> Process:
        """Start a replica, to which clients then talk."""
        return self.fleet.api("--files-dir", f"s3://{BUCKET}/fleet")


@pytest.fixture(scope="module")
def rig(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield Rig(running, server)


def test_the_life_of_a_large_file(rig: Rig) -> None:
    client = rig.fleet.client()
    status = Path(f"/proc/{rig.replica.popen.pid}/status")

    def peak() -> int:
        return int(status.read_text().partition("VmHWM:")[2].split()[0])

    client.files.delete(client.files.create(file=("small", bytes(100_000)), purpose="batch").id)
    before = peak()
    content = os.urandom(70_000_000)
    made = client.files.create(file=("in.jsonl", content), purpose="batch")
    assert (made.bytes, rig.server.objects()) == (len(content), [made.id])
    assert client.files.content(made.id).read() == content
    assert peak() - before < 50_000  # kB
    assert client.files.delete(made.id).deleted
    assert (rig.server.objects(), rig.server.uploads()) == ([], 0)
    with pytest.raises(openai.NotFoundError):
        client.files.content(made.id)


def test_each_line_of_a_batch_has_one_result_when_its_feeder_dies(rig: Rig) -> None:
    lines = [chat_line(f"line-{n}", f"[[tokens {TOKENS}]]", max_tokens=TOKENS) for n in range(LINES)]
    client = rig.fleet.client()
    made = submit(client, lines)

    def done() -> int:
        counts = client.batches.retrieve(made.id).request_counts
        return counts.completed if counts is not None else 0

    rig.fleet.until(lambda: done() >= 20, "some lines to be done")
    rig.replica.kill()
    rig.start_replica()
    client = rig.fleet.client()
    batch = ended(client, made, rig.fleet.logs)
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": LINES, "completed": LINES, "failed": 0}, rig.fleet.logs()
    output = results(client, batch.output_file_id)
    assert [line["custom_id"] for line in output] == [f"line-{n}" for n in range(LINES)]
    assert Counter(line["response"]["status_code"] for line in output) == {200: LINES}
    assert batch.output_file_id is not None
    expected = sorted([batch.input_file_id, batch.output_file_id])
    rig.fleet.until(lambda: rig.server.objects() == expected, "the segments to be deleted")


def test_a_server_that_is_away_is_a_503(rig: Rig, server: S3Server) -> None:
    client = rig.fleet.client()
    made = client.files.create(file=("in.jsonl", b"x"), purpose="batch")
    server.stop()
    with pytest.raises(openai.InternalServerError, match="can't read or write") as refusal:
        client.files.content(made.id)
    assert refusal.value.status_code == 503
    assert refusal.value.response.headers["retry-after"] == "5"
    with pytest.raises(openai.InternalServerError, match="can't read or write"):
        client.files.create(file=("in.jsonl", b"x"), purpose="batch")
    assert client.files.retrieve(made.id).id == made.id  # its record is in the store
