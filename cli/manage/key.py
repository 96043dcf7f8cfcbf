"""``vinoqueue key``: manage API keys."""

import time
from typing import Any

import click
import msgspec
from redis.asyncio import Redis

from api.keys import ApiKey
from api.keys.store import change, decoded, new_key, revoke, rotate, stored_records
from api.keys.store import create as store_key
from cli.base.instances import store_option
from cli.base.output import echo
from cli.base.store_reader import actor
from cli.manage.limits import (
    LIMIT_OPTIONS,
    LIMITS,
    Duration,
    changes_of,
    limit_words,
    refused_values,
    show_unreadable,
    with_store,
)
from shared.redis.clock import store_time
from shared.runtime.logs import escaped

_STORE = store_option()


@click.group()
def key() -> None:
    """Create, list, update, revoke and rotate API keys.

    Once a key exists, the API refuses requests without a valid key. Changes reach all replicas within two seconds.
    """


@key.command(params=[_STORE, *LIMIT_OPTIONS])
@click.option("--name", default="", help="Owner or purpose of the key.")
@click.option("--models", default="", help="Comma-separated models that the key may use; default: all.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["admin"]),
    multiple=True,
    help="What the key may do besides sending requests: 'admin' sees the state of the whole service.",
)
@click.option(
    "--priority",
    type=click.Choice(["flex", "default", "priority"]),
    default="default",
    show_default=True,
    help="Default and highest priority class of the key's requests.",
)
@click.option("--team", metavar="ID", help="Team of the key, whose limits it shares (vinoqueue team create).")
@click.option("--expires", type=Duration(), help="Time until the key expires, such as 30d; default: never.")
@click.option(
    "--toml", is_flag=True, help="Print an entry for a key file (--keys-file) instead of keeping the key in the store."
)
def create(redis_url: str, models: str, expires: float | None, toml: bool, **attributes: Any) -> None:
    """Create a key and print its secret, which is not stored and can't be shown again.

    \b
    vinoqueue key create --name search-team --requests-per-minute 60
    vinoqueue key create --name ci --models tiny --priority flex --expires 30d
    vinoqueue key create --name operator --scope admin
    """
    template = ApiKey(
        id="-",
        digest="0" * 64,
        models=tuple(model.strip() for model in models.split(",") if model.strip()),
        **attributes,
    )

    async def keep(redis: Redis) -> tuple[ApiKey, str, bool]:
        first = not await stored_records(redis, ApiKey)
        made, secret = await store_key(redis, template, lifetime=expires, by=actor())
        return made, secret, first

    if toml:
        with refused_values():
            made, secret = new_key(template, lifetime=expires)
        echo(as_toml(made))
        first = False
    else:
        made, secret, first = with_store(redis_url, keep)
    _show_secret(made, secret, on_stderr=toml)
    if first:
        echo(f"From now on, every request needs a key: export OPENAI_API_KEY={secret}", err=True)


@key.command("list", params=[_STORE])
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_(redis_url: str, as_json: bool) -> None:
    """List the keys in the store, without their secrets."""

    async def read(redis: Redis) -> tuple[dict[bytes, bytes], float]:
        return await stored_records(redis, ApiKey), await store_time(redis)

    stored, now = with_store(redis_url, read)
    found = decoded(stored, ApiKey)
    found.sort(key=lambda api_key: (api_key.created, api_key.id))
    if as_json:
        hidden = {"digest", "previous_digest"}
        records = [
            {name: value for name, value in msgspec.structs.asdict(api_key).items() if name not in hidden}
            for api_key in found
        ]
        echo(msgspec.json.encode(records).decode())
    elif not stored:
        echo("There are no keys in the store.")
    for api_key in () if as_json else found:
        echo(escaped("  ".join((api_key.id, _state(api_key, now), api_key.name or "-", *_limits(api_key)))))
    show_unreadable(stored, found)


@key.command("revoke", params=[_STORE])
@click.argument("key_id", metavar="ID")
def revoke_(redis_url: str, key_id: str) -> None:
    """Revoke a key immediately. It remains in the list."""

    async def end(redis: Redis) -> tuple[ApiKey, bool]:
        revoked = await revoke(redis, key_id, by=actor())
        now = await store_time(redis)
        return revoked, any(api_key.is_valid(now) for api_key in decoded(await stored_records(redis, ApiKey), ApiKey))

    revoked, others = with_store(redis_url, end)
    echo(f"{revoked.id} is revoked.")
    if not others:
        echo(
            "No valid key is left in the store. The API stays closed: create a key with 'vinoqueue key create'.",
            err=True,
        )


@key.command(params=[_STORE, *LIMIT_OPTIONS])
@click.argument("key_id", metavar="ID")
@click.option("--team", metavar="ID", help="Team of the key.")
@click.option(
    "--remove", type=click.Choice([*LIMITS, "team"]), multiple=True, help="Remove a limit. Can be given more than once."
)
def update(redis_url: str, key_id: str, remove: tuple[str, ...], **limits: Any) -> None:
    """Change the limits or the team of a key. Its secret does not change.

    \b
    vinoqueue key update key-1a2b3c4d --requests-per-minute 120 --remove concurrency
    """
    changes = changes_of(limits, remove)
    changed = with_store(redis_url, lambda redis: change(redis, ApiKey, key_id, changes, by=actor()))
    echo("  ".join((changed.id, changed.name or "-", *_limits(changed))))


@key.command("rotate", params=[_STORE])
@click.argument("key_id", metavar="ID")
@click.option(
    "--grace", type=Duration(), default=0.0, help="Time the old secret stays valid, such as 1h; default: none."
)
def rotate_(redis_url: str, key_id: str, grace: float) -> None:
    """Give a key a new secret and print it. The key's limits and usage do not change."""
    rotated, secret = with_store(redis_url, lambda redis: rotate(redis, key_id, grace=grace, by=actor()))
    _show_secret(rotated, secret)


def as_toml(made: ApiKey) -> str:
    """Return the key as an entry of a key file."""
    lines = [
        # JSON strings and arrays of strings are valid TOML.
        f"{name} = {msgspec.json.encode(value).decode()}"
        for name, value in msgspec.structs.asdict(made).items()
        if value not in (None, "", ()) and not (name == "previous_until" and value == 0)
    ]
    return "\n".join(("[[key]]", *lines))


def _show_secret(made: ApiKey, secret: str, *, on_stderr: bool = False) -> None:
    """Print the secret to standard output, alone, for scripts; or to standard error if ``on_stderr``."""
    echo(f"Key {made.id}. Keep the secret safe, it is not shown again:", err=True)
    echo(secret, err=on_stderr)


def _state(api_key: ApiKey, now: float) -> str:
    if api_key.revoked is not None:
        return "revoked"
    if api_key.expires is not None:
        if api_key.expires <= now:
            return "expired"
        return time.strftime("until %Y-%m-%d %H:%M", time.localtime(api_key.expires))
    return "valid"


def _limits(api_key: ApiKey) -> list[str]:
    words = limit_words(api_key)
    if api_key.team is not None:
        words.insert(0, f"team {api_key.team}")
    if api_key.models:
        words.append(f"models {','.join(api_key.models)}")
    words += [f"scope {scope}" for scope in api_key.scopes]
    return [*words, api_key.priority] if api_key.priority != "default" else words
