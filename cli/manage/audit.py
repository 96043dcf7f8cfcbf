"""``vinoqueue audit``: who changed keys, teams, batches, workers and models."""

import datetime

import click
import msgspec
from arq.connections import ArqRedis

from api.keys.audit import Change, read_changes
from cli.base.instances import store_option
from cli.base.output import echo
from cli.base.store_reader import read_store
from shared.runtime.logs import escaped


@click.command(params=[store_option()])
@click.option("--last", type=click.IntRange(1), default=100, show_default=True, help="Number of changes to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def audit(redis_url: str, last: int, as_json: bool) -> None:
    """Print who changed keys, teams, batches, workers and models, and when (UTC), oldest first."""

    async def read(redis: ArqRedis) -> list[Change]:
        return (await read_changes(redis, last))[::-1]

    for change in read_store(redis_url, read):
        at = datetime.datetime.fromtimestamp(change.at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        details = msgspec.json.encode(change.details).decode()
        if as_json:
            echo(msgspec.json.encode(change._asdict()).decode())
        else:
            words = (at, change.actor, change.action, change.target, *([details] if change.details else []))
            echo(escaped("  ".join(words)))
