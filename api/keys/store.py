"""API keys in the store, managed by the command line and read by every replica."""

import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from api.base.audit import log_change
from api.keys.record import ApiKey
from api.keys.secret import digest, new_secret
from shared.redis import keys
from shared.redis.clock import store_time
from shared.redis.records import skipped_unreadable

MOST_KEYS = 10_000
"""Maximum number of keys in the store; every replica reads all of them each second (:mod:`api.keys.keyring`)."""


class UnknownKey(Exception):
    """There is no key with this id, or its record cannot be read."""

    def __init__(self, key_id: str, *, unreadable: bool = False) -> None:
        super().__init__(
            f"The record of key '{key_id}' can't be read, and opens nothing."
            if unreadable
            else f"There is no key '{key_id}'."
        )


class TooManyKeys(Exception):
    """The store has as many keys as it may have, and none of them is revoked."""

    def __init__(self) -> None:
        super().__init__(f"There are {MOST_KEYS} API keys, the maximum. Revoke one that is not needed any more.")


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
    """Store ``key``, replacing one with the same id, and log the ``action`` of ``by`` (:mod:`api.base.audit`).

    If there are :data:`MOST_KEYS`, it replaces the one that was revoked first. Raises :class:`TooManyKeys` if none was.
    """

    async def put(pipe: Pipeline) -> None:
        dropped = await _superfluous(pipe, key.id)
        pipe.multi()  # type: ignore[no-untyped-call]
        if dropped:
            pipe.hdel(keys.API_KEYS, dropped)
        _write(pipe, key, by, action, details)

    await redis.transaction(put, keys.API_KEYS)


async def _superfluous(pipe: Pipeline, key_id: str) -> str | None:
    """Return the id of the revoked key that a new one replaces, if any must go. Raises :class:`TooManyKeys`."""
    if await pipe.hlen(keys.API_KEYS) < MOST_KEYS or await pipe.hexists(keys.API_KEYS, key_id):  # type: ignore[misc]
        return None
    revoked = [(key.revoked, key.id) for key in decoded(await stored_keys(pipe)) if key.revoked is not None]
    if not revoked:
        raise TooManyKeys
    return min(revoked)[1]


async def _edit(
    redis: Redis,
    key_id: str,
    edit: Callable[[ApiKey], ApiKey],
    *,
    by: str,
    action: str,
    details: Mapping[str, object] | None = None,
) -> ApiKey:
    """Store what ``edit`` makes of a key, log it, and return it. Raises :class:`UnknownKey`.

    It is made again if another change comes between: a revoked key must not be restored by a change of its limits.
    """

    async def write(pipe: Pipeline) -> ApiKey:
        edited = edit(await stored_key(pipe, key_id))
        pipe.multi()  # type: ignore[no-untyped-call]
        _write(pipe, edited, by, action, details)
        return edited

    edited: ApiKey = await redis.transaction(write, keys.API_KEYS, value_from_callable=True)
    return edited


def _write(pipe: Pipeline, key: ApiKey, by: str, action: str, details: Mapping[str, object] | None) -> None:
    pipe.hset(keys.API_KEYS, key.id, msgspec.json.encode(key))  # type: ignore[arg-type]
    log_change(pipe, by, action, key.id, details)


async def create(redis: Redis, template: ApiKey, *, by: str) -> tuple[ApiKey, str]:
    """Store a key made from ``template``; return the key and its secret. Raises :class:`TooManyKeys`."""
    made, secret = new_key(template, now=await store_time(redis))
    hidden = ("id", "digest", "created")
    details = {name: value for name, value in msgspec.to_builtins(made).items() if name not in hidden}
    await put_key(redis, made, by=by, details=details)
    return made, secret


async def stored_keys(redis: "Redis | Pipeline") -> dict[bytes, bytes]:
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
    edit = partial(msgspec.structs.replace, revoked=await store_time(redis))
    return await _edit(redis, key_id, edit, by=by, action="api_key.deleted")


async def change(redis: Redis, key_id: str, fields: Mapping[str, object], *, by: str) -> ApiKey:
    """Replace ``fields`` of a key, and return it. Raises :class:`UnknownKey`."""
    edit = partial(msgspec.structs.replace, **fields)
    return await _edit(redis, key_id, edit, by=by, action="api_key.updated", details=fields)


async def rotate(redis: Redis, key_id: str, *, grace: float, by: str) -> tuple[ApiKey, str]:
    """Give a key a new secret; the old one stays valid for ``grace`` seconds. Return the key and the new secret.

    Raises :class:`UnknownKey`.
    """
    secret, until = new_secret(), await store_time(redis) + grace if grace else 0.0

    def edit(key: ApiKey) -> ApiKey:
        previous = key.digest if grace else None
        return msgspec.structs.replace(key, digest=digest(secret), previous_digest=previous, previous_until=until)

    return await _edit(redis, key_id, edit, by=by, action="api_key.rotated", details={"grace": grace}), secret


async def stored_key(redis: "Redis | Pipeline", key_id: str) -> ApiKey:
    """Return a key. Raises :class:`UnknownKey`."""
    record: bytes | None = await redis.hget(keys.API_KEYS, key_id)  # type: ignore[misc]
    if record is None:
        raise UnknownKey(key_id)
    (key,) = decoded({key_id.encode(): record}) or (None,)
    if key is None:
        raise UnknownKey(key_id, unreadable=True)
    return key
