"""API keys and teams in the store, managed by operators and read by every replica."""

import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from api.base.audit import log_change
from api.keys.record import ApiKey, Limited, Team
from api.keys.secret import digest, new_secret
from shared.redis import keys
from shared.redis.clock import store_time
from shared.redis.records import skipped_unreadable

_Record = TypeVar("_Record", ApiKey, Team)


class _Kind(NamedTuple):
    word: str
    """Its name in messages and ids."""
    place: str
    """The hash with its records by id."""
    most: int
    """Maximum number of its records: every replica reads all of them each second (:mod:`api.keys.keyring`)."""
    events: str
    """Prefix of the names of its changes in the audit log."""
    end: str
    """Advice to end one."""


KINDS: Mapping[type[Limited], _Kind] = {
    ApiKey: _Kind("key", keys.API_KEYS, 10_000, "api_key", "Revoke"),
    Team: _Kind("team", keys.TEAMS, 1_000, "team", "Archive"),
}


class UnknownRecord(Exception):
    """There is no key or team with this id, or its record cannot be read."""

    def __init__(self, of: type[Limited], record_id: str, *, unreadable: bool = False) -> None:
        word = KINDS[of].word
        super().__init__(
            f"The record of {word} '{record_id}' can't be read, and is not used."
            if unreadable
            else f"There is no {word} '{record_id}'."
        )
        self.of = of


class TooManyRecords(Exception):
    """The store has as many keys, or teams, as it may have, and all of them are in use."""

    def __init__(self, of: type[Limited]) -> None:
        kind = KINDS[of]
        super().__init__(
            f"There are {kind.most} {kind.word}s in the store, the maximum. {kind.end} one that is not needed any more."
        )


def new_key(template: ApiKey, *, now: float | None = None) -> tuple[ApiKey, str]:
    """Return a key made from ``template`` with a new id, secret and creation time, and the secret.

    ``now`` is the time (Unix seconds); by default the wall clock's.
    """
    secret = new_secret()
    created = float(int(time.time() if now is None else now))
    made = msgspec.structs.replace(template, id=_new_id(ApiKey), digest=digest(secret), created=created)
    return made, secret


def _new_id(of: type[Limited]) -> str:
    """Return a new id. It is independent of the secret and may be logged."""
    return f"{KINDS[of].word}-{secrets.token_hex(4)}"


async def put_record(redis: Redis, record: _Record, *, by: str) -> None:
    """Store a new ``record``, replacing one with the same id, and log that ``by`` has (:mod:`api.base.audit`).

    If there are as many as there may be, it replaces the one that was revoked or archived first. Raises
    :class:`TooManyRecords` if none was, and :class:`UnknownRecord` for a key of a team that is not there.
    """
    kind = KINDS[type(record)]
    hidden = ("id", "digest", "created")
    details = {name: value for name, value in msgspec.to_builtins(record).items() if name not in hidden}

    async def write(pipe: Pipeline) -> None:
        await _check_team(pipe, record)
        dropped = await _superfluous(pipe, record)
        pipe.multi()  # type: ignore[no-untyped-call]
        if dropped:
            pipe.hdel(kind.place, dropped)
        _write(pipe, record, by, "created", details)

    await redis.transaction(write, keys.API_KEYS, keys.TEAMS)


async def _check_team(pipe: Pipeline, record: Limited) -> None:
    """Raise :class:`UnknownRecord` if ``record`` is a key whose team is not there, or is archived."""
    team = record.team if isinstance(record, ApiKey) else None
    if team is not None and (await stored_record(pipe, Team, team)).archived is not None:
        raise UnknownRecord(Team, team)


async def _superfluous(pipe: Pipeline, record: _Record) -> str | None:
    """Return the id of the ended record that a new one replaces, if any must go. Raises :class:`TooManyRecords`."""
    of = type(record)
    kind = KINDS[of]
    if await pipe.hlen(kind.place) < kind.most or await pipe.hexists(kind.place, record.id):  # type: ignore[misc]
        return None
    found = decoded(await stored_records(pipe, of), of)
    ended = [(one.ended, one.id) for one in found if one.ended is not None]
    if not ended:
        raise TooManyRecords(of)
    return min(ended)[1]


async def _edit(
    redis: Redis,
    of: type[_Record],
    record_id: str,
    edit: Callable[[_Record], _Record],
    *,
    by: str,
    event: str,
    details: Mapping[str, object] | None = None,
) -> _Record:
    """Store what ``edit`` makes of a record, log it, and return it. Raises :class:`UnknownRecord`.

    It is made again if another change comes between: a revoked key must not be restored by a change of its limits.
    """

    async def write(pipe: Pipeline) -> _Record:
        stored = await stored_record(pipe, of, record_id)
        edited = edit(stored)
        if isinstance(edited, ApiKey) and isinstance(stored, ApiKey) and edited.team != stored.team:
            await _check_team(pipe, edited)
        pipe.multi()  # type: ignore[no-untyped-call]
        _write(pipe, edited, by, event, details)
        return edited

    edited: _Record = await redis.transaction(write, keys.API_KEYS, keys.TEAMS, value_from_callable=True)
    return edited


def _write(pipe: Pipeline, record: Limited, by: str, event: str, details: Mapping[str, object] | None) -> None:
    kind = KINDS[type(record)]
    pipe.hset(kind.place, record.id, msgspec.json.encode(record))  # type: ignore[arg-type]
    log_change(pipe, by, f"{kind.events}.{event}", record.id, details)


async def create(redis: Redis, template: ApiKey, *, by: str) -> tuple[ApiKey, str]:
    """Store a key made from ``template``; return the key and its secret. Raises what :func:`put_record` raises."""
    made, secret = new_key(template, now=await store_time(redis))
    await put_record(redis, made, by=by)
    return made, secret


async def create_team(redis: Redis, template: Team, *, by: str) -> Team:
    """Store a team made from ``template``, and return it. Raises :class:`TooManyRecords`."""
    created = float(int(await store_time(redis)))
    made = msgspec.structs.replace(template, id=_new_id(Team), created=created)
    await put_record(redis, made, by=by)
    return made


async def archive(redis: Redis, team_id: str, *, by: str) -> Team:
    """Archive a team at once: its keys are not accepted any more. Raises :class:`UnknownRecord`."""
    edit = partial(msgspec.structs.replace, archived=await store_time(redis))
    return await _edit(redis, Team, team_id, edit, by=by, event="archived")


async def stored_records(redis: "Redis | Pipeline", of: type[Limited]) -> dict[bytes, bytes]:
    """Return all encoded records by id."""
    stored: dict[bytes, bytes] = await redis.hgetall(KINDS[of].place)  # type: ignore[misc]
    return stored


def decoded(records: Mapping[bytes, bytes], of: type[_Record]) -> list[_Record]:
    """Return the keys or teams in ``records``. Unreadable records are reported and skipped."""
    found = []
    for record_id, record in records.items():
        with skipped_unreadable(f"{KINDS[of].place} {record_id.decode(errors='replace')}"):
            one = msgspec.json.decode(record, type=of)
            if one.id.encode() != record_id:
                raise ValueError(f"its id is {one.id!r}")
            found.append(one)
    return found


async def revoke(redis: Redis, key_id: str, *, by: str) -> ApiKey:
    """Revoke a key at once. Its record stays, so that revoking the last key does not open the service.

    Raises :class:`UnknownRecord`.
    """
    edit = partial(msgspec.structs.replace, revoked=await store_time(redis))
    return await _edit(redis, ApiKey, key_id, edit, by=by, event="deleted")


async def change(redis: Redis, of: type[_Record], record_id: str, fields: Mapping[str, object], *, by: str) -> _Record:
    """Replace ``fields`` of a key or a team, and return it. Raises :class:`UnknownRecord`."""
    edit = partial(msgspec.structs.replace, **fields)
    return await _edit(redis, of, record_id, edit, by=by, event="updated", details=fields)


async def rotate(redis: Redis, key_id: str, *, grace: float, by: str) -> tuple[ApiKey, str]:
    """Give a key a new secret; the old one stays valid for ``grace`` seconds. Return the key and the new secret.

    Raises :class:`UnknownRecord`.
    """
    secret, until = new_secret(), await store_time(redis) + grace if grace else 0.0

    def edit(key: ApiKey) -> ApiKey:
        previous = key.digest if grace else None
        return msgspec.structs.replace(key, digest=digest(secret), previous_digest=previous, previous_until=until)

    return await _edit(redis, ApiKey, key_id, edit, by=by, event="rotated", details={"grace": grace}), secret


async def stored_record(redis: "Redis | Pipeline", of: type[_Record], record_id: str) -> _Record:
    """Return a key or a team. Raises :class:`UnknownRecord`."""
    record: bytes | None = await redis.hget(KINDS[of].place, record_id)  # type: ignore[misc]
    if record is None:
        raise UnknownRecord(of, record_id)
    (one,) = decoded({record_id.encode(): record}, of) or (None,)
    if one is None:
        raise UnknownRecord(of, record_id, unreadable=True)
    return one
