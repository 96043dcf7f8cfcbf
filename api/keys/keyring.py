"""The keyring: this replica's copy of the API keys and teams from the environment, the key file and the store."""

import asyncio
import logging
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from api.keys.record import ApiKey, KeyFile, Team
from api.keys.secret import digest
from api.keys.store import decoded, stored_records
from shared.redis import keys, outage
from shared.redis.clock import StoreClock, store_time
from shared.redis.store_check import store_info
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

REFRESH = 1.0
"""Refresh interval in seconds, after which a created or revoked key takes effect on all replicas."""

_INDEX_LENGTH = 16
"""Leading characters of a digest used as index, before the whole is compared in constant time. Lookup timing reveals at
most part of a hash, which does not help to find a secret."""


class KeyFileError(Exception):
    """The key file is unreadable or malformed."""


class NoKeysError(Exception):
    """Keys are required, but there is none: every request would be refused."""


class Keyring:
    """Finds the API key of a secret. Without any key the service is open, unless keys are required.

    Once a key has been seen, the service stays closed, so that a store that loses its keys does not open it: this
    replica at once, and those that start later by a mark in the store. A store that has evicted keys may have lost
    both.
    """

    def __init__(self, redis: Redis, *, plain: str, file: str, required: bool, public_address: str = "") -> None:
        """``plain`` is a comma-separated list of secrets, ``file`` the path of a key file; both may be empty.

        ``public_address`` is where the service listens, unless that is a loopback address; an open one logs a warning.
        Raises :class:`KeyFileError`.
        """
        self._redis = redis
        self._path = Path(file) if file else None
        self._from_environment = [_plain_key(secret) for secret in plain.split(",") if secret.strip()]
        self._from_file = KeyFile()
        self._from_redis: list[ApiKey] = []
        self._file_state: object = None
        self._teams_from_redis: list[Team] = []
        self._records: dict[bytes, bytes] | None = None
        self._team_records: dict[bytes, bytes] = {}
        self._required = required or bool(file)
        self._public_address = public_address
        self._index: dict[str, list[ApiKey]] = {}
        self._by_id: dict[str, ApiKey] = {}
        self._teams: dict[str, Team] = {}
        self._clock = StoreClock()
        if self._path is not None:
            self._from_file = _read_file(self._path)
            self._file_state = _state(self._path)
        self._rebuild()

    @property
    def loaded(self) -> bool:
        """Whether the store has been read once. Before, it is unknown whether the service is open."""
        return self._records is not None

    @property
    def open(self) -> bool:
        """Whether requests need no key."""
        return not self._required

    @property
    def empty(self) -> bool:
        """Whether there is no key. Revoked and expired keys count as keys."""
        return not self._index and not self._records

    async def ensure_any(self, patience: float) -> None:
        """Check at start that there is a key in the environment, the key file or the store.

        The store is read only if the other sources have none. If it does not respond within ``patience`` seconds, the
        service starts closed. Raises :class:`NoKeysError`.
        """
        if not self.empty:
            return
        try:
            async with asyncio.timeout(patience):
                await self.refresh()
        except (TimeoutError, RedisError, OSError) as error:
            logger.warning("Redis does not respond, so it is not known whether there is an API key: %s", error)
            return
        if self.empty:
            raise NoKeysError(
                "--require-keys (VINOQUEUE_REQUIRE_KEYS) is set, but there is no API key: not in VINOQUEUE_API_KEYS, "
                "not in a key file (VINOQUEUE_KEYS_FILE), and not in Redis. Make one with 'vinoqueue key create', and "
                "start again."
            )

    async def run(self, on_refresh: Callable[[], None]) -> None:
        """Refresh until cancelled, and call ``on_refresh`` after each success."""
        while True:
            with outage.store.reported("keys"):
                await self.refresh()
                on_refresh()
            await asyncio.sleep(next_tick(REFRESH))

    async def refresh(self) -> None:
        """Read the key file and the store now. Raises what redis-py raises when the store is unreachable."""
        changed = self._refresh_file()
        records, teams, now, closed = await asyncio.gather(
            stored_records(self._redis, ApiKey),
            stored_records(self._redis, Team),
            store_time(self._redis),
            self._redis.exists(keys.CLOSED),
        )
        self._clock.set(now)
        first = not self.loaded
        if records and not closed:
            with suppress(RedisError, OSError):
                await self._redis.set(keys.CLOSED, 1)
        if first and self.open and not records and (closed or (await store_info(self._redis)).get("evicted_keys")):
            logger.error(
                "requests without an API key are refused, although there is none: the store has lost them. Make one "
                "with 'vinoqueue key create'"
            )
            self._required = True
        if records != self._records or teams != self._team_records:
            self._from_redis, self._teams_from_redis = decoded(records, ApiKey), decoded(teams, Team)
            self._records, self._team_records = records, teams
            changed = True
        if changed:
            self._rebuild()
        if first and self.open and self._public_address:
            logger.warning(
                "anybody who reaches this port may use this service: it listens on %s and has no API keys. Make one "
                "with 'vinoqueue key create'",
                self._public_address,
            )

    def find(self, secrets: Iterable[str]) -> ApiKey | None:
        """Return the key of the first valid secret in ``secrets``, if any."""
        now = self._clock.now()
        for secret in secrets:
            wanted = digest(secret)
            for key in self._index.get(wanted[:_INDEX_LENGTH], ()):
                if key.opens(wanted, now) and self._has_its_team(key):
                    return key
        return None

    def named(self, key_id: str) -> ApiKey | None:
        return self._by_id.get(key_id)

    def team_of(self, key: ApiKey) -> Team | None:
        """Return the team of a key, if it has one."""
        return None if key.team is None else self._teams.get(key.team)

    def is_valid(self, key: ApiKey) -> bool:
        return key.is_valid(self._clock.now()) and self._has_its_team(key)

    def allows(self, key_id: str) -> bool:
        """Return whether requests of the key with this id may go on; those without a key (empty id) always may."""
        key = self.named(key_id)
        return not key_id or (key is not None and self.is_valid(key))

    def _has_its_team(self, key: ApiKey) -> bool:
        """Return whether ``key`` may be used as far as its team is concerned, which must exist."""
        team = self.team_of(key)
        return key.team is None or (team is not None and team.archived is None)

    def _refresh_file(self) -> bool:
        if self._path is None or (state := _state(self._path)) == self._file_state:
            return False
        self._file_state = state
        try:
            self._from_file = _read_file(self._path)
        except KeyFileError as error:
            logger.error("%s; its keys stay as they were", error)
            return False
        logger.info("%d keys read from the key file", len(self._from_file.key))
        return True

    def _rebuild(self) -> None:
        index: dict[str, list[ApiKey]] = {}
        by_id: dict[str, ApiKey] = {}
        for key in (*self._from_environment, *self._from_file.key, *self._from_redis):
            for stored in filter(None, (key.digest, key.previous_digest)):
                index.setdefault(stored[:_INDEX_LENGTH], []).append(key)
            by_id.setdefault(key.id, key)
        self._index, self._by_id = index, by_id
        self._teams = {team.id: team for team in (*self._teams_from_redis, *self._from_file.team)}
        for key in by_id.values():
            if key.team is not None and key.team not in self._teams:
                logger.warning(
                    "key %s is not accepted: its team %s is neither in Redis nor in a file", key.id, key.team
                )
        self._required = self._required or bool(index) or bool(self._records)


def _plain_key(secret: str) -> ApiKey:
    secret_digest = digest(secret.strip())
    return ApiKey(id=f"env-{secret_digest[:8]}", digest=secret_digest, name="environment")


def _read_file(path: Path) -> KeyFile:
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), KeyFile)
    except OSError as error:
        raise KeyFileError(f"The key file can't be read: {error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise KeyFileError(f"The key file {path} is malformed: {error}") from None


def _state(path: Path) -> object:
    """Return a value that changes with the file; ``None`` if it does not exist."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
