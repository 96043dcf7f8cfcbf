"""API keys in the store, managed by the command line and read by every replica."""

import secrets
import time
from collections.abc import Mapping

import msgspec
from redis.asyncio import Redis

from api.keys.record import ApiKey
from api.keys.secret import digest, new_secret
from shared.redis import keys
from shared.redis.clock import store_time
from shared.redis.records import UNREADABLE, report_unreadable


class UnknownKey(Exception):
    """There is no key with this id, or its record cannot be read."""

    def __init__(self, key_id: str, *, unreadable: bool = False) -> None:
        super().__init__(
            f"The record of key '{key_id}' can't be read, and opens nothing."
            if unreadable
            else f"There is no key '{key_id}'."
        )


def new_key(template: ApiKey, *, now: float | None = None) -> tuple[ApiKey, str]:
    """Return a key made from ``template`` with a new id, secret and creation time, and the secret.

    ``now`` is the time (Unix seconds); by default the wall clock's.
    """
    secret = new_secret()
    created = float(int(time.time() if now is None else now))
    made = msgspec.structs.replace(template, id=new_id(), digest=digest(secret), created=created)
    return made, secret


def new_id() -> str:
    """Return a new id. It is independent of the secret and may be logged."""
    return f"key-{secrets.token_hex(4)}"


async def put_key(redis: Redis, key: ApiKey) -> None:
    """Store ``key``, replacing one with the same id."""
    await redis.hset(keys.API_KEYS, key.id, msgspec.json.encode(key))  # type: ignore[arg-type, misc]


async def stored_keys(redis: Redis) -> dict[bytes, bytes]:
    """Return all encoded records by id."""
    stored: dict[bytes, bytes] = await redis.hgetall(keys.API_KEYS)  # type: ignore[misc]
    return stored


def decoded(records: Mapping[bytes, bytes]) -> list[ApiKey]:
    """Return the keys in ``records``. Unreadable records are reported and skipped."""
    found = []
    for key_id, record in records.items():
        try:
            key = msgspec.json.decode(record, type=ApiKey)
            if key.id.encode() != key_id:
                raise ValueError(f"its id is {key.id!r}")
        except UNREADABLE as error:
            report_unreadable(f"{keys.API_KEYS} {key_id.decode(errors='replace')}", error)
        else:
            found.append(key)
    return found


async def revoke(redis: Redis, key_id: str) -> ApiKey:
    """Revoke a key at once. Its record stays, so that revoking the last key does not open the service.

    Raises :class:`UnknownKey`.
    """
    revoked = msgspec.structs.replace(await _stored(redis, key_id), revoked=await store_time(redis))
    await put_key(redis, revoked)
    return revoked


async def change(redis: Redis, key_id: str, fields: Mapping[str, object]) -> ApiKey:
    """Replace ``fields`` of a key, and return it. Raises :class:`UnknownKey`."""
    changed = msgspec.structs.replace(await _stored(redis, key_id), **fields)
    await put_key(redis, changed)
    return changed


async def rotate(redis: Redis, key_id: str, *, grace: float) -> tuple[ApiKey, str]:
    """Give a key a new secret; the old one stays valid for ``grace`` seconds. Return the key and the new secret.

    Raises :class:`UnknownKey`.
    """
    key, secret = await _stored(redis, key_id), new_secret()
    rotated = msgspec.structs.replace(
        key,
        digest=digest(secret),
        previous_digest=key.digest if grace else None,
        previous_until=await store_time(redis) + grace if grace else 0.0,
    )
    await put_key(redis, rotated)
    return rotated, secret


async def _stored(redis: Redis, key_id: str) -> ApiKey:
    record: bytes | None = await redis.hget(keys.API_KEYS, key_id)  # type: ignore[misc]
    if record is None:
        raise UnknownKey(key_id)
    (key,) = decoded({key_id.encode(): record}) or (None,)
    if key is None:
        raise UnknownKey(key_id, unreadable=True)
    return key
