"""Commands write no key and no team that its reader refuses; unreadable records are listed, repaired and ended."""

import asyncio
import json
import tomllib
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from click.testing import CliRunner, Result
from fakeredis import FakeAsyncRedis, FakeServer

from api.keys import ApiKey, Team
from api.keys.record import LIMITS, KeyFile
from api.keys.store import decoded, stored_records
from cli.main import main
from shared.redis import keys
from tests.support.redis_types import awaitable

BEYOND = {
    "queue_timeout": ("0s", "20000d", "9" * 400 + "d"),
    "weight": ("0", "101"),
    **{name: ("0", str(10**15 + 1)) for name in LIMITS if name not in ("queue_timeout", "weight")},
}
AT = {
    "queue_timeout": ("1s", "1000000000s"),
    "weight": ("1", "100"),
    **{name: ("1", str(10**15)) for name in LIMITS if name not in ("queue_timeout", "weight")},
}


def cases(values: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(f"--{name.replace('_', '-')}", value) for name, of_name in values.items() for value in of_name]


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    server = FakeServer()
    monkeypatch.setattr("cli.base.instances.running", list)
    monkeypatch.setattr("cli.base.store_reader.connect", lambda *_, **__: FakeAsyncRedis(server=server))
    return server


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def stored(server: FakeServer, of: type[ApiKey] | type[Team]) -> dict[bytes, bytes]:
    return asyncio.run(stored_records(FakeAsyncRedis(server=server), of))


def readable(server: FakeServer) -> bool:
    found, teams = stored(server, ApiKey), stored(server, Team)
    return (len(decoded(found, ApiKey)), len(decoded(teams, Team))) == (len(found), len(teams))


@pytest.mark.parametrize(("option", "value"), cases(BEYOND))
def test_a_value_beyond_a_bound_is_refused_by_its_option(server: FakeServer, option: str, value: str) -> None:
    run("key", "create")
    (key_id,) = (name.decode() for name in stored(server, ApiKey))
    team = run("team", "create", "--name", "a").stdout.strip()
    before = stored(server, ApiKey), stored(server, Team)
    for command in (
        ("key", "create"),
        ("key", "create", "--toml"),
        ("key", "update", key_id),
        ("team", "create", "--name", "b"),
        ("team", "update", team),
    ):
        outcome = run(*command, option, value)
        assert outcome.exit_code == 2, outcome.output
        assert f"'{option}'" in outcome.stderr
        assert "Traceback" not in outcome.output
    assert (stored(server, ApiKey), stored(server, Team)) == before


@pytest.mark.parametrize(("option", "value"), cases(AT))
def test_a_value_at_a_bound_is_written_and_read(server: FakeServer, option: str, value: str) -> None:
    entry = run("key", "create", "--toml", option, value)
    (written,) = msgspec.convert(tomllib.loads(entry.stdout), KeyFile).key
    assert getattr(written, option[2:].replace("-", "_")) == float(value.rstrip("s"))
    team = run("team", "create", "--name", "a").stdout.strip()
    for command in (("key", "create"), ("team", "update", team)):
        assert run(*command, option, value).exit_code == 0
    assert readable(server)


@pytest.mark.parametrize("value", ["99999999d", "9" * 400 + "d"])
@pytest.mark.parametrize(("command", "option"), [("rotate", "--grace"), ("create", "--expires")])
def test_a_time_beyond_what_a_record_can_have_is_refused(
    server: FakeServer, command: str, option: str, value: str
) -> None:
    run("key", "create")
    (key_id,) = (name.decode() for name in stored(server, ApiKey))
    outcome = run("key", command, *([key_id] if command == "rotate" else []), option, value)
    assert (outcome.exit_code, f"'{option}'" in outcome.stderr) == (2, True), outcome.output
    assert readable(server)


def test_texts_have_bounds_too(server: FakeServer) -> None:
    for arguments in (("--name", "x" * 201), ("--models", "x" * 513), ("--models", ",".join(map(str, range(1001))))):
        assert run("key", "create", *arguments).exit_code == 2
    assert not stored(server, ApiKey)


def damage(server: FakeServer, **fields: object) -> str:
    """Make a key, and write ``fields`` into its record; return its id."""

    async def write() -> str:
        redis = FakeAsyncRedis(server=server)
        ((name, record),) = (await awaitable(redis.hgetall(keys.API_KEYS))).items()
        await awaitable(redis.hset(keys.API_KEYS, name, json.dumps(json.loads(record) | fields)))
        key_id: str = name.decode()
        return key_id

    run("key", "create", "--tokens-per-day", "5")
    return asyncio.run(write())


def test_an_unreadable_record_is_listed_and_repaired(server: FakeServer) -> None:
    key_id = damage(server, queue_timeout=0)
    assert f"{key_id}  unreadable" in run("key", "list").stderr
    other = run("key", "update", key_id, "--concurrency", "3")
    assert (other.exit_code, "'queue_timeout' is invalid" in other.stderr) == (1, True), other.output
    assert run("key", "update", key_id, "--remove", "queue-timeout").exit_code == 0
    (repaired,) = decoded(stored(server, ApiKey), ApiKey)
    assert (repaired.queue_timeout, repaired.tokens_per_day) == (None, 5)


@pytest.mark.parametrize("fields", [{"queue_timeout": 0, "weight": -1}, {"digest": 5}, {"unknown": 1}])
def test_an_unreadable_record_is_revoked(server: FakeServer, fields: dict[str, object]) -> None:
    key_id = damage(server, **fields)
    assert run("key", "revoke", key_id).exit_code == 0
    (revoked,) = decoded(stored(server, ApiKey), ApiKey)
    assert (revoked.id, revoked.revoked is not None) == (key_id, True)
