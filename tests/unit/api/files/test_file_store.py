"""Records and contents of files: who sees what, for how long, and what is left on the disk."""

import asyncio
import io
import os
import resource
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import BinaryIO

import pytest
from arq.connections import ArqRedis
from quart.datastructures import FileStorage

from api.app import create_app
from api.build import build
from api.files.folder import FilesFolder, in_storage, storage_root
from api.files.record import FilePurpose, FileRecord, new_file_id
from api.files.storage import DirectoryStorage
from api.files.store import MAX_UPLOADS, FileCleanup, FileStore
from shared.protocol.errors import RequestRefused
from shared.redis import keys
from shared.runtime.settings import ApiSettings
from tests.support.eventually import PATIENCE, eventually
from tests.support.redis_types import awaitable


@pytest.fixture
def store(redis: ArqRedis, tmp_path: Path) -> FileStore:
    return FileStore(redis, FilesFolder(redis, storage_root(str(tmp_path))), limit=3, max_bytes=1000)


async def put(
    store: FileStore, content: bytes, owner: str = "me", purpose: FilePurpose = "batch", ttl: int = 100
) -> FileRecord:
    writer = (await store.storage()).create()
    now = int(time.time())
    record = FileRecord(
        id=new_file_id(),
        owner=owner,
        filename="a.jsonl",
        size=len(content),
        purpose=purpose,
        created=now,
        expires=now + ttl,
    )
    writer.write(content)
    writer.commit(record.id)
    await store.add(record)
    return record


async def listed(store: FileStore, **wanted: object) -> list[FileRecord]:
    files, _ = await store.select("me", **wanted)  # type: ignore[arg-type]
    return files


async def test_a_file_belongs_to_its_owner(store: FileStore) -> None:
    record = await put(store, b"hello")
    assert await store.get("me", record.id) == record
    with await store.open(record) as file:
        assert file.read() == b"hello"
    assert await store.get("other", record.id) is None
    assert not await store.delete("other", record.id)
    assert await store.delete("me", record.id)
    assert not await store.delete("me", record.id)
    with pytest.raises(FileNotFoundError):
        await store.open(record)


@pytest.mark.parametrize("method", ["open", "open_local"])
async def test_a_file_that_is_opened_for_a_cancelled_task_is_closed(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    record = await put(store, b"hello")
    started, released, opened = threading.Event(), threading.Event(), list[BinaryIO]()
    original = getattr(DirectoryStorage, method)

    def slow(storage: DirectoryStorage, name: str) -> BinaryIO:
        started.set()
        released.wait(PATIENCE)
        opened.append(original(storage, name))
        return opened[0]

    monkeypatch.setattr(DirectoryStorage, method, slow)
    opening = asyncio.create_task(getattr(store, method)(record))
    await eventually(started.is_set, "the thread")
    opening.cancel()
    await asyncio.wait([opening])
    released.set()
    await eventually(lambda: opened and opened[0].closed, "the file to be closed")


async def test_pages(store: FileStore) -> None:
    first, result, last = (
        await put(store, b"1"),
        await put(store, b"2", purpose="batch_output"),
        await put(store, b"3"),
    )
    await put(store, b"4", owner="other")
    assert await listed(store) == [last, result, first]
    assert await listed(store, newest_first=False) == [first, result, last]
    assert await listed(store, purpose="batch_output") == [result]
    assert await store.select("me", limit=2) == ([last, result], True)
    assert await listed(store, after=result.id) == [first]
    with pytest.raises(RequestRefused, match="nothing with id 'file-1' found"):
        await store.select("me", after="file-1")


async def test_an_owner_has_a_limited_number_of_files(store: FileStore, redis: ArqRedis) -> None:
    records = [await put(store, b"1") for _ in range(3)]
    with pytest.raises(RequestRefused, match="files already, the maximum"):
        await put(store, b"2")
    await put(store, b"3", purpose="batch_output")
    await redis.delete(keys.file(records[0].id))
    await redis.delete(keys.file(records[1].id))  # as if they had expired
    await put(store, b"4")


async def test_nothing_is_uploaded_for_which_there_is_no_room(store: FileStore, redis: ArqRedis) -> None:
    records = [await put(store, b"1") for _ in range(3)]
    with pytest.raises(RequestRefused, match="files already, the maximum"):
        async with store.uploading("me", 1):
            raise AssertionError("the upload was admitted")
    async with store.uploading("other", 1):
        pass
    await store.require_room("me", for_results=True)
    for _ in range(3):
        await put(store, b"2", purpose="batch_output")
    with pytest.raises(RequestRefused, match="files already, the maximum"):
        await store.require_room("me", for_results=True)
    for record in records:
        await redis.delete(keys.file(record.id))  # as if they had expired
    await store.require_room("me", for_results=True)


async def test_the_files_of_an_owner_have_a_limited_size(store: FileStore, redis: ArqRedis) -> None:
    first, second = await put(store, b"1" * 400), await put(store, b"2" * 600)
    with pytest.raises(RequestRefused, match="bytes together"):
        await put(store, b"3")
    with pytest.raises(RequestRefused, match="bytes together"):
        async with store.uploading("me", 1):
            raise AssertionError("the upload was admitted")
    await put(store, b"3" * 1000, owner="other")
    await store.require_room("me", 1000, for_results=True)
    result = await put(store, b"4" * 5000, purpose="batch_output")
    with pytest.raises(RequestRefused, match="bytes together"):
        await store.require_room("me", for_results=True)
    assert await store.delete("me", result.id)
    assert await store.delete("me", second.id)
    await put(store, b"5" * 600)
    await redis.delete(keys.file(first.id))  # as if it had expired
    await put(store, b"6" * 400)
    with pytest.raises(RequestRefused, match="bytes together"):
        await put(store, b"7")
    assert set(await awaitable(redis.hvals(keys.file_sizes("me")))) == {b"600", b"400", b"1000"}
    assert await redis.pttl(keys.file_sizes("me")) > 0


async def test_a_file_whose_reply_was_lost_is_counted_once(store: FileStore) -> None:
    record = await put(store, b"1" * 600)
    await store.add(record)
    await put(store, b"2" * 400)


async def test_uploads_leave_free_disk_space(redis: ArqRedis, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = storage_root(str(tmp_path), min_free=2**60)
    store = FileStore(redis, FilesFolder(redis, root), limit=3, max_bytes=1000)
    writer = (await store.storage()).create()
    with pytest.raises(RequestRefused, match="can't read or write its files"):
        await in_storage(lambda: writer.write(b"1"))
    writer.discard()
    assert "must stay free" in caplog.text
    (await store.storage()).write_at("batch_1", 0, b"results are written all the same")


async def test_an_owner_has_a_limited_number_of_uploads_at_a_time(store: FileStore) -> None:
    async with AsyncExitStack() as uploads:
        for _ in range(MAX_UPLOADS):
            await uploads.enter_async_context(store.uploading("me", 1))
        with pytest.raises(RequestRefused, match="You are uploading"):
            await uploads.enter_async_context(store.uploading("me", 1))
        await uploads.enter_async_context(store.uploading("other", 1))
    async with store.uploading("me", 1):
        pass


async def test_a_partial_file_is_invisible_and_goes(store: FileStore, tmp_path: Path) -> None:
    storage = await store.storage()
    writer = storage.create()
    writer.write(b"half")
    (partial,) = (entry.name for entry in storage.names())
    assert await store.get("me", partial) is None
    writer.discard()
    assert list(storage.names()) == []


async def test_a_file_for_which_the_disk_has_no_space_goes(store: FileStore) -> None:
    storage = await store.storage()
    writer = storage.create()

    def write() -> None:
        for _ in range(10_000):
            writer.write(b"x" * 100)

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # Python ignores the signal SIGXFSZ.
    try:
        with pytest.raises(OSError, match="File too large"):
            write()
        writer.discard()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(storage.names()) == []


async def test_cleanup_deletes_old_contents_without_a_record(store: FileStore, redis: ArqRedis, tmp_path: Path) -> None:
    storage = await store.storage()
    kept, expired = await put(store, b"1"), await put(store, b"2")
    await redis.delete(keys.file(expired.id))
    (tmp_path / (await redis.get(keys.FILES_FOLDER)).decode() / "0.partial").touch()  # of a replica that was killed
    assert await FileCleanup(store).sweep() == 0
    assert len(list(storage.names())) == 3
    assert await FileCleanup(store, min_age=-1).sweep() == 2
    assert [entry.name for entry in storage.names()] == [kept.id]


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/b", "", ".", "..", "a\x00b", ".partial"])
async def test_names_never_leave_the_folder(store: FileStore, name: str) -> None:
    assert await store.get("me", name) is None
    storage = await store.storage()
    for use in (storage.open, storage.remove):
        with pytest.raises(ValueError, match="not the name"):
            use(name)


async def test_replicas_share_one_folder(store: FileStore, redis: ArqRedis, tmp_path: Path) -> None:
    record = await put(store, b"shared")
    other = FileStore(redis, FilesFolder(redis, storage_root(str(tmp_path))), limit=3, max_bytes=1000)
    with await other.open(record) as file:
        assert file.read() == b"shared"
    elsewhere = FileStore(redis, FilesFolder(redis, storage_root(str(tmp_path / "elsewhere"))), limit=3, max_bytes=1000)
    with pytest.raises(RequestRefused, match="log of this API replica"):
        await elsewhere.storage()


async def test_a_store_that_forgot_the_folder_gets_the_one_in_use(
    store: FileStore, redis: ArqRedis, tmp_path: Path
) -> None:
    await store.storage()
    await redis.flushall()
    await store.storage()
    assert len(os.listdir(tmp_path)) == 1


async def test_head_reads_nothing(redis: ArqRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = build(redis, ApiSettings(files_dir=str(tmp_path), max_files_bytes=100), "r")
    client = create_app(replica).test_client()
    record = await put(replica.batches.files, b"hello", owner="")
    read: list[int] = []

    async def pieces(file: BinaryIO) -> AsyncIterator[bytes]:
        read.append(1)
        with file:
            yield file.read()

    monkeypatch.setattr("api.files.routes._pieces", pieces)
    path = f"/v1/files/{record.id}/content"
    assert await (await client.get(path)).get_data() == b"hello"
    assert read
    read.clear()
    head = await client.head(path)
    assert (head.status_code, head.content_type) == (200, "application/octet-stream")
    assert not read
    (await replica.batches.files.storage()).remove(record.id)
    assert (await client.head(path)).status_code == 404


async def test_the_refusal_of_files_that_are_too_large_together(redis: ArqRedis, tmp_path: Path) -> None:
    replica = build(redis, ApiSettings(files_dir=str(tmp_path), max_files_bytes=100), "r")
    client = create_app(replica).test_client()
    for status in (200, 400):
        answer = await client.post(
            "/v1/files", form={"purpose": "batch"}, files={"file": FileStorage(io.BytesIO(b"x" * 60), "a.jsonl")}
        )
        assert answer.status_code == status
    error = (await answer.get_json())["error"]
    assert (error["code"], error["param"]) == ("file_storage_limit_exceeded", "file")
    assert "at most 100 bytes together" in error["message"]
    assert len(list((await replica.batches.files.storage()).names())) == 1
