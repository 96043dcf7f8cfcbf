"""The media store: files are held by requests, stored once, bounded in total, and deleted with their last hold."""

import pytest
from arq.connections import ArqRedis

from shared.protocol.media import MediaFull, MediaStore, digest_of
from shared.redis import keys
from tests.support.wall_clock import WallClock

CAT, DOG = b"cat" * 100, b"dog" * 100
LIMIT = len(CAT) + len(DOG)
TTL_MS = 60_000


@pytest.fixture
def media(redis: ArqRedis) -> MediaStore:
    return MediaStore(redis, limit=LIMIT, ttl_ms=TTL_MS)


def by_digest(*files: bytes) -> dict[str, bytes]:
    return {digest_of(file): file for file in files}


async def stored(media: MediaStore, *files: bytes) -> list[bool]:
    found = await media.fetch([digest_of(file) for file in files])
    assert all(file in (None, wanted) for file, wanted in zip(found, files, strict=True))
    return [file is not None for file in found]


async def assert_empty(redis: ArqRedis) -> None:
    assert await redis.keys(keys.PREFIX + "media*") == []


async def test_a_file_is_there_until_its_last_request_has_released_it(media: MediaStore, redis: ArqRedis) -> None:
    await media.hold("r1", by_digest(CAT))
    await media.hold("r2", by_digest(CAT, DOG))
    await media.release("r1", by_digest(CAT))
    assert await stored(media, CAT, DOG) == [True, True]
    await media.release("r2", by_digest(CAT, DOG))
    assert await stored(media, CAT, DOG) == [False, False]
    await assert_empty(redis)


async def test_a_release_counts_once(media: MediaStore) -> None:
    await media.hold("r1", by_digest(CAT))
    await media.hold("r2", by_digest(CAT))
    await media.hold("r2", by_digest(CAT))
    await media.release("r1", by_digest(CAT))
    await media.release("r1", by_digest(CAT))
    assert await stored(media, CAT) == [True]
    await media.release("r2", by_digest(CAT))
    assert await stored(media, CAT) == [False]


async def test_files_beyond_the_limit_are_refused_as_a_whole(media: MediaStore) -> None:
    await media.hold("r1", by_digest(CAT))
    with pytest.raises(MediaFull):
        await media.hold("r2", by_digest(CAT, DOG, b"one byte too many"))
    assert await stored(media, CAT, DOG) == [True, False]
    await media.hold("r2", by_digest(CAT, DOG))
    with pytest.raises(MediaFull):
        await media.hold("r3", by_digest(b"x"))
    await media.hold("r3", by_digest(CAT))
    await media.release("r2", by_digest(CAT, DOG))
    await media.hold("r4", by_digest(DOG))


async def test_holds_of_a_replica_that_died_expire(media: MediaStore, redis: ArqRedis, wall_clock: WallClock) -> None:
    await media.hold("lost", by_digest(CAT))
    wall_clock.advance(TTL_MS / 1000 - 1)
    await media.hold("r2", by_digest(DOG))
    with pytest.raises(MediaFull):
        await media.hold("r3", by_digest(b"x"))
    wall_clock.advance(2)
    await media.hold("r3", by_digest(b"x"))
    assert await stored(media, CAT, DOG, b"x") == [False, True, True]
    await media.release("r2", by_digest(DOG))
    await media.release("r3", by_digest(b"x"))
    await assert_empty(redis)


async def test_an_idle_store_becomes_empty(media: MediaStore, redis: ArqRedis, wall_clock: WallClock) -> None:
    await media.hold("lost", by_digest(CAT, DOG))
    wall_clock.advance(2 * TTL_MS / 1000 + 1)
    await assert_empty(redis)
    await media.hold("r1", by_digest(CAT, DOG))
    assert await stored(media, CAT, DOG) == [True, True]


async def test_foreign_values_are_replaced(media: MediaStore, redis: ArqRedis) -> None:
    await redis.set(keys.MEDIA_HOLDS, "garbage")
    await redis.zadd(keys.MEDIA_SIZES, {"garbage": 1})
    await media.hold("r1", by_digest(CAT))
    await media.release("r1", by_digest(CAT))
    await assert_empty(redis)
