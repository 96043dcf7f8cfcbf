"""API keys and teams in the store, managed by operators and read by every replica."""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from api.keys.audit import log_change
from api.keys.record import ApiKey, InvalidRecord, Limited, Team, encoded
from api.keys.secret import digest, new_secret
from shared.redis import keys
from shared.redis.clock import store_time
from shared.redis.records import UNREADABLE, skipped_unreadable

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
    """There is no key or team with this id."""

    def __init__(self, of: type[Limited], record_id: str) -> None:
        super().__init__(f"There is no {KINDS[of].word} '{record_id}'.")
        self.of = of


class UnreadableRecord(Exception):
    """The record of a key or a team cannot be read, and is not used. It can be changed, and ended."""

    def __init__(self, of: type[Limited], record_id: str, reason: str) -> None:
        kind = KINDS[of]
        super().__init__(
            f"The record of {kind.word} '{record_id}' can't be read: {reason} Change or remove that field, or "
            f"{kind.end.lower()} the {kind.word}."
        )


class RecordExists(Exception):
    """There is a key or a team with this id already."""


class TooManyRecords(Exception):
    """The store has as many keys, or teams, as it may have, and all of them are in use."""

    def __init__(self, of: type[Limited]) -> None:
        kind = KINDS[of]
        super().__init__(
            f"There are {kind.most} {kind.word}s in the store, the maximum. {kind.end} one that is not needed any more."
        )


def new_key(template: ApiKey, *, lifetime: float | None = None, now: float | None = None) -> tuple[ApiKey, str]:
    """Return a key made from ``template`` with a new id, secret and creation time, and the secret.

    It expires ``lifetime`` seconds after its creation, if that is given. ``now`` is the time (Unix seconds); by default
    the wall clock's. Raises :class:`InvalidRecord`.
    """
    secret = new_secret()
    created = float(int(time.time() if now is None else now))
    fields: dict[str, object] = {"id": _new_id(ApiKey), "digest": digest(secret), "created": created}
    if lifetime is not None:
        fields["expires"] = created + lifetime
    made = msgspec.structs.replace(template, **fields)
    encoded(made)
    return made, secret


def _new_id(of: type[Limited]) -> str:
    """Return a new id. It is independent of the secret and may be logged."""
    return f"{KINDS[of].word}-{secrets.token_hex(8)}"


async def put_record(redis: Redis, record: _Record, *, by: str) -> None:
    """Store a new ``record``, and log that ``by`` has (:mod:`api.keys.audit`).

    If there are as many as there may be, it replaces the one that was revoked or archived first. Raises
    :class:`TooManyRecords` if none was, :class:`RecordExists`, :class:`InvalidRecord`, and :class:`UnknownRecord` for a
    key of a team that is not there.
    """
    kind = KINDS[type(record)]
    hidden = ("id", "digest", "created")
    details = {name: value for name, value in msgspec.to_builtins(record).items() if name not in hidden}

    async def write(pipe: Pipeline) -> None:
        if await pipe.hexists(kind.place, record.id):  # type: ignore[misc]
            raise RecordExists(record.id)
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
    if await pipe.hlen(kind.place) < kind.most:  # type: ignore[misc]
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
    edit: Callable[[dict[str, Any]], Mapping[str, object]],
    *,
    by: str,
    event: str,
    details: Mapping[str, object] | None = None,
) -> _Record:
    """Replace the fields of a record that ``edit`` returns for its stored ones, log it, and return the record.

    ``edit`` is called again if another change comes between: a revoked key must not be restored by a change of its
    limits. A record that cannot be read is repaired if the new fields are what was wrong; if it is ended, what cannot
    be read of it is dropped. Raises :class:`UnknownRecord`, :class:`UnreadableRecord` and :class:`InvalidRecord`.
    """

    async def write(pipe: Pipeline) -> _Record:
        stored = await _stored_fields(pipe, of, record_id)
        changes = edit(stored)
        edited = _converted({**stored, **changes}, changes, of, record_id, ends=event in _ENDS)
        if isinstance(edited, ApiKey) and changes.get("team") not in (None, stored.get("team")):
            await _check_team(pipe, edited)
        pipe.multi()  # type: ignore[no-untyped-call]
        _write(pipe, edited, by, event, details)
        return edited

    edited: _Record = await redis.transaction(write, keys.API_KEYS, keys.TEAMS, value_from_callable=True)
    return edited


_ENDS = ("deleted", "archived")
"""The events that end a key or a team."""


async def _stored_fields(pipe: Pipeline, of: type[Limited], record_id: str) -> dict[str, Any]:
    """Return the fields of a stored record, valid or not. Raises :class:`UnknownRecord`."""
    record: bytes | None = await pipe.hget(KINDS[of].place, record_id)  # type: ignore[misc]
    if record is None:
        raise UnknownRecord(of, record_id)
    try:
        stored = msgspec.json.decode(record)
    except UNREADABLE:
        stored = None
    return stored if isinstance(stored, dict) else {}


def _converted(
    fields: dict[str, Any], changes: Mapping[str, object], of: type[_Record], record_id: str, *, ends: bool
) -> _Record:
    """Return the record with ``fields``, ``changes`` among them. Raises what :func:`_edit` raises."""
    if fields.get("id") != record_id and not ends:
        raise UnreadableRecord(of, record_id, f"Its id is {fields.get('id')!r}.")
    fields["id"] = record_id
    least = {"id": record_id, **({"digest": _NO_DIGEST} if of is ApiKey else {}), **changes}
    while True:
        try:
            return msgspec.convert(fields, of)
        except msgspec.ValidationError as error:
            invalid = InvalidRecord(error)
            if invalid.field in changes:
                raise invalid from None
            if not ends or fields == least:
                raise UnreadableRecord(of, record_id, str(invalid)) from None
            if fields.pop(invalid.field, None) is None or invalid.field == "id":
                fields = least


_NO_DIGEST = "0" * 64
"""The digest of a revoked key whose digest cannot be read: no secret has it."""


def _write(pipe: Pipeline, record: Limited, by: str, event: str, details: Mapping[str, object] | None) -> None:
    kind = KINDS[type(record)]
    pipe.hset(kind.place, record.id, encoded(record))  # type: ignore[arg-type]
    log_change(pipe, by, f"{kind.events}.{event}", record.id, details)


async def create(redis: Redis, template: ApiKey, *, lifetime: float | None = None, by: str) -> tuple[ApiKey, str]:
    """Store a key made from ``template`` (:func:`new_key`); return the key and its secret.

    Raises what :func:`put_record` raises.
    """
    made, secret = new_key(template, lifetime=lifetime, now=await store_time(redis))
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
    ended = {"archived": await store_time(redis)}
    return await _edit(redis, Team, team_id, lambda _: ended, by=by, event="archived")


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
    ended = {"revoked": await store_time(redis)}
    return await _edit(redis, ApiKey, key_id, lambda _: ended, by=by, event="deleted")


async def change(redis: Redis, of: type[_Record], record_id: str, fields: Mapping[str, object], *, by: str) -> _Record:
    """Replace ``fields`` of a key or a team, and return it. Raises what :func:`_edit` raises."""
    return await _edit(redis, of, record_id, lambda _: fields, by=by, event="updated", details=fields)


async def rotate(redis: Redis, key_id: str, *, grace: float, by: str) -> tuple[ApiKey, str]:
    """Give a key a new secret; the old one stays valid for ``grace`` seconds. Return the key and the new secret.

    Raises what :func:`_edit` raises.
    """
    secret, until = new_secret(), await store_time(redis) + grace if grace else 0.0

    def edit(stored: dict[str, Any]) -> Mapping[str, object]:
        previous = stored.get("digest") if grace else None
        return {"digest": digest(secret), "previous_digest": previous, "previous_until": until}

    return await _edit(redis, ApiKey, key_id, edit, by=by, event="rotated", details={"grace": grace}), secret


async def stored_record(redis: "Redis | Pipeline", of: type[_Record], record_id: str) -> _Record:
    """Return a key or a team. Raises :class:`UnknownRecord` and :class:`UnreadableRecord`."""
    record: bytes | None = await redis.hget(KINDS[of].place, record_id)  # type: ignore[misc]
    if record is None:
        raise UnknownRecord(of, record_id)
    try:
        return msgspec.json.decode(record, type=of)
    except UNREADABLE as error:
        reason = str(InvalidRecord(error) if isinstance(error, msgspec.ValidationError) else error)
        raise UnreadableRecord(of, record_id, reason) from None
