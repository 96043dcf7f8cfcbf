"""The records of API keys, without their secrets, and of teams."""

from typing import Annotated, Literal, Self

import msgspec

from api.keys.secret import matches

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
PositiveCount = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
UnixTime = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
RecordId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
Weight = Annotated[int, msgspec.Meta(ge=1, le=100)]
Name = Annotated[str, msgspec.Meta(max_length=200)]
Models = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=512)], ...], msgspec.Meta(max_length=1000)]
Priority = Literal["flex", "default", "priority"]
Scope = Literal["admin"]
"""What a key may do besides sending requests: ``admin`` reads the fleet view, and loads and unloads models."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What keys and teams have in common, as in the store and in key files. ``None`` means no limit.

    Times are Unix seconds.
    """

    id: RecordId
    name: Name = ""
    """Human-readable name of the owner."""
    weight: Weight | None = None
    """Share in fair queueing, relative to others; ``None`` means 1."""
    requests_per_minute: PositiveCount | None = None
    tokens_per_minute: PositiveCount | None = None
    tokens_per_day: PositiveCount | None = None
    """Budget of prompt and completion tokens for a day (UTC), batch requests included."""
    tokens_per_month: PositiveCount | None = None
    """The same for a calendar month."""
    concurrency: PositiveCount | None = None
    """Maximum number of concurrent requests."""
    queue_timeout: PositiveSeconds | None = None
    """Maximum queue wait in seconds; ``None`` for that of the team, or the service's setting."""
    default_max_tokens: PositiveCount | None = None
    """Maximum number of tokens of each output whose request sets none; ``None`` as above."""
    created: UnixTime = 0.0

    @property
    def is_limited(self) -> bool:
        """Whether requests must reserve tokens or a place."""
        limits = (self.requests_per_minute, self.tokens_per_minute, self.concurrency, *self.budgets)
        return any(limit is not None for limit in limits)

    @property
    def budgets(self) -> tuple[int | None, int | None]:
        """Its tokens per day and per month."""
        return self.tokens_per_day, self.tokens_per_month

    def without_rates(self) -> Self:
        """Return it without the limits that count neither batch requests nor requests for tokens."""
        return msgspec.structs.replace(self, requests_per_minute=None, tokens_per_minute=None, concurrency=None)


LIMITS = tuple(name for name in _Record.__struct_fields__ if name not in ("id", "name", "created"))
"""The fields of keys and teams that limit them, and their weight; all of them can be changed."""


class Team(_Record, frozen=True, kw_only=True):
    """A group of keys with limits of their own, which count the requests of all its keys together."""

    archived: UnixTime | None = None

    @property
    def ended(self) -> UnixTime | None:
        """When it was archived, if it was."""
        return self.archived

    @property
    def limits_id(self) -> str:
        """The name of what the store counts for it."""
        return f"team:{self.id}"  # No key's id has a colon.


class ApiKey(_Record, frozen=True, kw_only=True):
    """One API key."""

    digest: Digest
    """SHA-256 of the secret (:func:`api.keys.secret.digest`)."""
    team: RecordId | None = None
    models: Models = ()
    """Allowed models; empty for all."""
    scopes: tuple[Scope, ...] = ()
    priority: Priority = "default"
    """The default and the highest service tier of its requests."""
    expires: UnixTime | None = None
    revoked: UnixTime | None = None
    previous_digest: Digest | None = None
    """Digest of the secret before the last rotation."""
    previous_until: UnixTime = 0.0
    """When the previous secret expires."""

    @property
    def ended(self) -> UnixTime | None:
        """When it was revoked, if it was."""
        return self.revoked

    @property
    def limits_id(self) -> str:
        """The name of what the store counts for it."""
        return self.id

    def is_valid(self, now: float) -> bool:
        """Return whether the key is neither revoked nor expired at ``now``."""
        return self.revoked is None and (self.expires is None or self.expires > now)

    def opens(self, secret_digest: str, now: float) -> bool:
        """Return whether a secret with this digest is valid for the key at ``now``."""
        if not self.is_valid(now):
            return False
        if matches(secret_digest, self.digest):
            return True
        return (
            self.previous_digest is not None
            and self.previous_until > now
            and matches(secret_digest, self.previous_digest)
        )

    def may_use(self, model: str) -> bool:
        return not self.models or model in self.models


Limited = ApiKey | Team
"""What has limits."""


class InvalidRecord(Exception):
    """A field of a key or a team has a value that its record cannot have."""

    def __init__(self, error: msgspec.ValidationError) -> None:
        reason, _, place = str(error).partition(" - at `$.")
        self.field = place.rstrip("`").partition("[")[0]
        """Name of the field, ``""`` if it is the whole record."""
        self.reason = reason
        super().__init__(f"'{self.field}' is invalid: {reason}." if self.field else f"{reason}.")


def encoded(record: Limited) -> bytes:
    """Return ``record`` as it is stored. Raises :class:`InvalidRecord` if its reader would refuse it."""
    try:
        msgspec.convert(msgspec.to_builtins(record), type(record))
    except msgspec.ValidationError as error:
        raise InvalidRecord(error) from None
    return msgspec.json.encode(record)


class KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key file: a TOML table ``[[key]]`` for each key, and ``[[team]]`` for each team."""

    key: tuple[ApiKey, ...] = ()
    team: tuple[Team, ...] = ()
