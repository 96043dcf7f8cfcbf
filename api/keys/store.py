"""API keys in the store, managed by the command line and read by every replica."""

import secrets
import time
from collections.abc import Mapping

import msgspec
from redis.asyncio import Redis

from api.base.audit import log_change
from api.keys.record import ApiKey
from api.keys.secret import digest, new_secret
from shared.redis import keys
from shared.redis.clock import store_time
from shared.redis.records import skipped_unreadable


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


async def put_key(
    redis: Redis, key: ApiKey, *, by: str, action: str = "api_key.created", details: Mapping[str, object] | None = None
) -> None:
    """Store ``key``, replacing one with the same id, and log the ``action`` of ``by`` (:mod:`api.base.audit`)."""
    async with redis.pipeline() as pipe:
        pipe.hset(keys.API_KEYS, key.id, msgspec.json.encode(key))  # type: ignore[arg-type]
        log_change(pipe, by, action, key.id, details)
        await pipe.execute()


async def create(redis: Redis, template: ApiKey, *, by: str) -> tuple[ApiKey, str]:
    """Store a key made from ``template``; return the key and its secret."""
    made, secret = new_key(template, now=await store_time(redis))
    hidden = ("id", "digest", "created")
    details = {name: value for name, value in msgspec.to_builtins(made).items() if name not in hidden}
    await put_key(redis, made, by=by, details=details)
    return made, secret


async def stored_keys(redis: Redis) -> dict[bytes, bytes]:
    """Return all encoded records by id."""
    stored: dict[bytes, bytes] = await redis.hgetall(keys.API_KEYS)  # type: ignore[misc]
    return stored


def decoded(records: Mapping[bytes, bytes]) -> list[ApiKey]:
    """Return the keys in ``records``. Unreadable records are reported and skipped."""
    found = []
    for key_id, record in records.items():
        with skipped_unreadable(f"{keys.API_KEYS} {key_id.decode(errors='replace')}"):
            key = msgspec.json.decode(record, type=ApiKey)
            if key.id.encode() != key_id:
                raise ValueError(f"its id is {key.id!r}")
            found.append(key)
    return found


async def revoke(redis: Redis, key_id: str, *, by: str) -> ApiKey:
    """Revoke a key at once. Its record stays, so that revoking the last key does not open the service.

    Raises :class:`UnknownKey`.
    """
    revoked = msgspec.structs.replace(await stored_key(redis, key_id), revoked=await store_time(redis))
    await put_key(redis, revoked, by=by, action="api_key.deleted")
    return revoked


async def change(redis: Redis, key_id: str, fields: Mapping[str, object], *, by: str) -> ApiKey:
    """Replace ``fields`` of a key, and return it. Raises :class:`UnknownKey`."""
    changed = msgspec.structs.replace(await stored_key(redis, key_id), **fields)
    await put_key(redis, changed, by=by, action="api_key.updated", details=fields)
    return changed


async def rotate(redis: Redis, key_id: str, *, grace: float, by: str) -> tuple[ApiKey, str]:
    """Give a key a new secret; the old one stays valid for ``grace`` seconds. Return the key and the new secret.

    Raises :class:`UnknownKey`.
    """
    key, secret = await stored_key(redis, key_id), new_secret()
    rotated = msgspec.structs.replace(
        key,
        digest=digest(secret),
        previous_digest=key.digest if grace else None,
        previous_until=await store_time(redis) + grace if grace else 0.0,
    )
    await put_key(redis, rotated, by=by, action="api_key.rotated", details={"grace": grace})
    return rotated, secret


async def stored_key(redis: Redis, key_id: str) -> ApiKey:
    """Return a key. Raises :class:`UnknownKey`."""
    record: bytes | None = await redis.hget(keys.API_KEYS, key_id)  # type: ignore[misc]
    if record is None:
        raise UnknownKey(key_id)
    (key,) = decoded({key_id.encode(): record}) or (None,)
    if key is None:
        raise UnknownKey(key_id, unreadable=True)
    return key
