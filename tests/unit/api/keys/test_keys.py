"""API keys: where they come from, when they open the service, and what is kept of them."""

import json
import logging
import time
from pathlib import Path
from typing import cast

import pytest
from arq.connections import ArqRedis
from click.testing import CliRunner
from redis.asyncio.client import Pipeline

from api.keys import ApiKey, KeyFileError, Keyring, Team, store
from api.keys.secret import digest, masked, new_secret
from api.keys.store import (
    TooManyRecords,
    UnknownRecord,
    UnreadableRecord,
    change,
    create,
    decoded,
    new_key,
    put_record,
    revoke,
    rotate,
    stored_records,
)
from cli.main import main
from cli.manage.key import as_toml
from shared.redis import keys
from tests.support.redis_types import awaitable


def keyring(redis: ArqRedis, *, plain: str = "", file: str = "", required: bool = False) -> Keyring:
    return Keyring(redis, plain=plain, file=file, required=required)


def template(**fields: object) -> ApiKey:
    return ApiKey(id="-", digest="0" * 64, **fields)  # type: ignore[arg-type]


async def test_without_keys_the_service_is_open(redis: ArqRedis) -> None:
    ring = keyring(redis)
    await ring.refresh()
    assert ring.open
    assert not keyring(redis, required=True).open


async def test_a_key_in_redis_closes_the_service_for_good(redis: ArqRedis) -> None:
    ring = keyring(redis)
    made, secret = new_key(template(name="team"))
    await put_record(redis, made, by="test")
    await ring.refresh()
    assert not ring.open
    assert ring.find([secret]) == made
    assert ring.find(["wrong", secret]) == made
    assert ring.find([secret + "x", made.digest, ""]) is None
    await redis.flushall()
    await ring.refresh()
    assert not ring.open
    assert ring.find([secret]) is None


async def test_only_a_hash_of_the_secret_is_kept(redis: ArqRedis) -> None:
    made, secret = new_key(template())
    await put_record(redis, made, by="test")
    kept = (await awaitable(redis.hgetall(keys.API_KEYS)))[made.id.encode()].decode()
    assert secret not in kept
    assert secret.removeprefix("sk-vq-") not in kept
    assert digest(secret) in kept


async def test_a_revoked_key_ends_and_does_not_open_the_service(redis: ArqRedis) -> None:
    made, secret = new_key(template())
    await put_record(redis, made, by="test")
    await revoke(redis, made.id, by="test")
    ring = keyring(redis)
    await ring.refresh()
    assert not ring.open
    assert ring.find([secret]) is None


async def test_an_expired_key_ends(redis: ArqRedis) -> None:
    made, secret = new_key(template(expires=time.time() - 1))
    await put_record(redis, made, by="test")
    ring = keyring(redis)
    await ring.refresh()
    assert ring.find([secret]) is None


@pytest.mark.parametrize(("grace", "old_is_valid"), [(0.0, False), (60.0, True)])
async def test_a_rotated_key_has_a_new_secret(redis: ArqRedis, grace: float, old_is_valid: bool) -> None:
    made, old = new_key(template(requests_per_minute=5))
    await put_record(redis, made, by="test")
    rotated, new = await rotate(redis, made.id, grace=grace, by="test")
    assert (rotated.id, rotated.requests_per_minute) == (made.id, 5)
    ring = keyring(redis)
    await ring.refresh()
    assert ring.find([new]) == rotated
    assert (ring.find([old]) == rotated) is old_is_valid


async def test_a_key_that_is_not_there_can_not_be_changed(redis: ArqRedis) -> None:
    with pytest.raises(UnknownRecord, match="'key-none'"):
        await revoke(redis, "key-none", by="test")
    with pytest.raises(UnknownRecord):
        await rotate(redis, "key-none", grace=0, by="test")


async def test_plain_keys_of_the_environment(redis: ArqRedis) -> None:
    ring = keyring(redis, plain="first-secret, second-secret")
    assert not ring.open
    first, second = ring.find(["first-secret"]), ring.find(["second-secret"])
    assert first is not None
    assert second is not None
    assert first.id != second.id
    assert "secret" not in first.id + first.digest
    assert ring.find(["first-secret, second-secret"]) is None


async def test_a_key_file_is_read_again_when_it_changes(redis: ArqRedis, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    first, second = new_secret(), new_secret()
    path.write_text(f'[[key]]\nid = "one"\ndigest = "{digest(first)}"\nmodels = ["tiny"]\n')
    ring = keyring(redis, file=str(path))
    found = ring.find([first])
    assert found is not None
    assert (found.id, found.may_use("tiny"), found.may_use("large")) == ("one", True, False)
    path.write_text(f'[[key]]\nid = "two"\ndigest = "{digest(second)}"\nexpires = {int(time.time()) + 60}\n# longer\n')
    await ring.refresh()
    assert ring.find([first]) is None
    assert ring.find([second]) is not None


async def test_a_file_that_breaks_leaves_the_keys_as_they_were(
    redis: ArqRedis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.toml"
    secret = new_secret()
    path.write_text(f'[[key]]\nid = "one"\ndigest = "{digest(secret)}"\n')
    ring = keyring(redis, file=str(path))
    for broken in ("[[key", '[[key]]\nid = "one"\ndigest = "short"\n'):
        path.write_text(broken)
        with caplog.at_level(logging.ERROR):
            await ring.refresh()
        assert "malformed" in caplog.text
        caplog.clear()
    path.unlink()
    await ring.refresh()
    assert ring.find([secret]) is not None


@pytest.mark.parametrize(
    "text", ["[[key", '[[key]]\nid = "one"\n', '[[key]]\nid = "x"\ndigest = "y"\nmodel = 1\n', None]
)
async def test_a_bad_file_at_the_start_is_an_error(redis: ArqRedis, tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "keys.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(KeyFileError, match="key file"):
        keyring(redis, file=str(path))


async def test_an_unreadable_record_keeps_the_service_closed(redis: ArqRedis, caplog: pytest.LogCaptureFixture) -> None:
    await awaitable(redis.hset(keys.API_KEYS, "key-1", "no json"))
    ring = keyring(redis)
    await ring.refresh()
    assert not ring.open
    assert "key-1 in the store cannot be read" in caplog.text.replace("'", "")


@pytest.mark.parametrize("record", [b"{", b"\xff", b'{"id":"evil"}', b'{"id":"other","digest":"' + b"0" * 64 + b'"}'])
async def test_an_unreadable_record_costs_no_other_key_anything(redis: ArqRedis, record: bytes) -> None:
    ring = keyring(redis)
    made, secret = new_key(ApiKey(id="-", digest="0" * 64))
    await put_record(redis, made, by="test")
    await ring.refresh()
    await awaitable(redis.hset(keys.API_KEYS, mapping={"evil": record}))
    newer, newer_secret = new_key(ApiKey(id="-", digest="0" * 64))
    await put_record(redis, newer, by="test")
    await ring.refresh()
    assert (ring.find([secret]), ring.find([newer_secret])) == (made, newer)
    with pytest.raises(UnreadableRecord, match="can't be read"):
        await change(redis, ApiKey, "evil", {"concurrency": 1}, by="test")
    await revoke(redis, "evil", by="test")
    await ring.refresh()
    assert (ring.find([secret]), ring.find([newer_secret])) == (made, newer)


@pytest.mark.parametrize("record", [b"{", b'{"id":"no id","digest":"' + b"0" * 64 + b'","name":5}'])
async def test_a_record_under_what_is_no_id_is_refused_by_name(redis: ArqRedis, record: bytes) -> None:
    await awaitable(redis.hset(keys.API_KEYS, mapping={"no id": record}))
    with pytest.raises(UnreadableRecord, match="'id' is invalid"):
        await revoke(redis, "no id", by="test")


@pytest.mark.parametrize(("address", "warned"), [("0.0.0.0", True), ("", False)])
async def test_an_open_service_on_a_public_address_is_warned_about(
    redis: ArqRedis, caplog: pytest.LogCaptureFixture, address: str, warned: bool
) -> None:
    ring = Keyring(redis, plain="", file="", required=False, public_address=address)
    await ring.refresh()
    await ring.refresh()
    assert caplog.text.count("has no API keys") == int(warned)


def test_a_shown_secret_is_masked() -> None:
    secret = new_secret()
    assert masked(secret) == f"sk-vq***{secret[-2:]}"
    assert masked("short") == "***"
    assert new_secret() != secret


def test_a_file_entry_printed_by_the_command_line_opens_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.base.instances.running", list)
    arguments = ["key", "create", "--toml", "--name", 'a "quoted" team', "--models", "a,b", "--expires", "30d"]
    outcome = CliRunner().invoke(
        main,
        [
            *arguments,
            "--priority",
            "flex",
            "--queue-timeout",
            "90s",
            "--concurrency",
            "3",
            "--default-max-tokens",
            "50",
        ],
    )
    assert outcome.exit_code == 0, outcome.output
    path = tmp_path / "keys.toml"
    path.write_text(outcome.stdout)
    secret = outcome.stderr.split()[-1]
    assert secret not in outcome.stdout
    found = keyring(cast(ArqRedis, None), file=str(path)).find([secret])
    assert found is not None
    assert (found.name, found.models, found.priority) == ('a "quoted" team', ("a", "b"), "flex")
    assert (found.queue_timeout, found.concurrency, found.default_max_tokens) == (90.0, 3, 50)
    assert found.expires is not None
    assert found.expires > time.time() + 29 * 86400


async def test_records_survive_their_own_encoding(redis: ArqRedis) -> None:
    made, _ = new_key(template(models=("a",), tokens_per_minute=10, priority="priority"))
    await put_record(redis, made, by="test")
    (record,) = (await stored_records(redis, ApiKey)).values()
    assert json.loads(record)["priority"] == "priority"
    assert decoded(await stored_records(redis, ApiKey), ApiKey) == [made]


async def test_the_number_of_keys_is_bounded_and_revoked_ones_make_room(
    redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {of: kind._replace(most=3) for of, kind in store.KINDS.items()}
    monkeypatch.setattr(store, "KINDS", kinds)
    made = [(await create(redis, template(name=name), by="test"))[0].id for name in "abc"]
    with pytest.raises(TooManyRecords, match="3 keys in the store, the maximum"):
        await create(redis, template(name="d"), by="test")
    await change(redis, ApiKey, made[0], {"concurrency": 1}, by="test")
    await revoke(redis, made[1], by="test")
    last, _ = await create(redis, template(name="d"), by="test")
    assert {key.id for key in decoded(await stored_records(redis, ApiKey), ApiKey)} == {made[0], made[2], last.id}


async def test_a_change_that_comes_between_is_not_lost(redis: ArqRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = await create(redis, template(), by="test")
    read, revoked = store._stored_fields, False

    async def read_before_a_revocation(at: Pipeline, of: type[ApiKey], key_id: str) -> dict[str, object]:
        nonlocal revoked
        found = await read(at, of, key_id)
        if not revoked:
            revoked = True
            await revoke(redis, key_id, by="another")
        return found

    monkeypatch.setattr(store, "_stored_fields", read_before_a_revocation)
    changed = await change(redis, ApiKey, made.id, {"concurrency": 1}, by="test")
    assert changed.concurrency == 1
    assert changed.revoked is not None


async def test_a_key_needs_its_team_which_may_be_in_a_file(redis: ArqRedis, tmp_path: Path) -> None:
    made, secret = new_key(template(team="physics"))
    file = tmp_path / "keys.toml"
    file.write_text(as_toml(made))
    ring = keyring(redis, file=str(file))
    await ring.refresh()
    assert ring.find([secret]) is None
    file.write_text(f'{as_toml(made)}\n[[team]]\nid = "physics"\ntokens_per_day = 5\n')
    await ring.refresh()
    assert ring.find([secret]) == made
    assert ring.team_of(made) == Team(id="physics", tokens_per_day=5)
