"""Records and contents of files: who sees what, for how long, and what is left on the disk."""

import os
import resource
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from arq.connections import ArqRedis

from api.files import (
    MAX_UPLOADS,
    FileRecord,
    FileSelection,
    FileStore,
    TooManyFiles,
    TooManyUploads,
    storage_root,
)
from api.files.cleanup import FileCleanup
from api.files.folder import FilesFolder
from api.files.record import FilePurpose, new_file_id
from shared.protocol.errors import RequestRefused
from shared.redis import keys


@pytest.fixture
def store(redis: ArqRedis, tmp_path: Path) -> FileStore:
    return FileStore(redis, FilesFolder(redis, storage_root(str(tmp_path))), limit=3)


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
    page = await store.select("me", FileSelection(**wanted))  # type: ignore[arg-type]
    assert page is not None
    return page.files


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
    page = await store.select("me", FileSelection(limit=2))
    assert page is not None
    assert page == ([last, result], True)
    assert await listed(store, after=result.id) == [first]
    assert await store.select("me", FileSelection(after="file-1")) is None


async def test_an_owner_has_a_limited_number_of_files(store: FileStore, redis: ArqRedis) -> None:
    records = [await put(store, b"1") for _ in range(3)]
    with pytest.raises(TooManyFiles):
        await put(store, b"2")
    await put(store, b"3", purpose="batch_output")
    await redis.delete(keys.file(records[0].id))
    await redis.delete(keys.file(records[1].id))  # as if they had expired
    await put(store, b"4")


async def test_nothing_is_uploaded_for_which_there_is_no_room(store: FileStore, redis: ArqRedis) -> None:
    records = [await put(store, b"1") for _ in range(3)]
    with pytest.raises(TooManyFiles):
        async with store.uploading("me"):
            raise AssertionError("the upload was admitted")
    async with store.uploading("other"):
        pass
    await store.require_room("me", for_results=True)
    for _ in range(3):
        await put(store, b"2", purpose="batch_output")
    with pytest.raises(TooManyFiles):
        await store.require_room("me", for_results=True)
    for record in records:
        await redis.delete(keys.file(record.id))  # as if they had expired
    await store.require_room("me", for_results=True)


async def test_an_owner_has_a_limited_number_of_uploads_at_a_time(store: FileStore) -> None:
    async with AsyncExitStack() as uploads:
        for _ in range(MAX_UPLOADS):
            await uploads.enter_async_context(store.uploading("me"))
        with pytest.raises(TooManyUploads):
            await uploads.enter_async_context(store.uploading("me"))
        await uploads.enter_async_context(store.uploading("other"))
    async with store.uploading("me"):
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
    other = FileStore(redis, FilesFolder(redis, storage_root(str(tmp_path))), limit=3)
    with await other.open(record) as file:
        assert file.read() == b"shared"
    elsewhere = FileStore(redis, FilesFolder(redis, storage_root(str(tmp_path / "elsewhere"))), limit=3)
    with pytest.raises(RequestRefused, match="log of this API replica"):
        await elsewhere.storage()


async def test_a_store_that_forgot_the_folder_gets_the_one_in_use(
    store: FileStore, redis: ArqRedis, tmp_path: Path
) -> None:
    await store.storage()
    await redis.flushall()
    await store.storage()
    assert len(os.listdir(tmp_path)) == 1
