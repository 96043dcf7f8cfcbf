"""``vinoqueue usage``: what keys have used."""

import csv
import datetime
import sys
from collections.abc import Callable

import click
import msgspec
from arq.connections import ArqRedis

from api.keys import ApiKey, Team
from api.keys.store import decoded as decoded_records
from api.keys.store import stored_records
from api.organization.usage import DailyUsage, decoded, read_days, summed
from cli.base.instances import store_option
from cli.base.output import echo
from cli.base.store_reader import read_store
from cli.monitor.tables import Table, aligned
from shared.protocol.usage import DAY, RETENTION, UsageCounts
from shared.redis.clock import store_time
from shared.runtime.logs import escaped

_GROUPS: dict[str, Callable[[DailyUsage], str]] = {
    "key": lambda usage: usage.key,
    "team": lambda usage: usage.team,
    "model": lambda usage: usage.model,
    "day": lambda usage: _date(usage.day),
}
_EPOCH = datetime.date(1970, 1, 1)
_COUNTS = UsageCounts.__struct_fields__


@click.command(params=[store_option()])
@click.option(
    "--by",
    type=click.Choice([*_GROUPS]),
    multiple=True,
    default=["key"],
    show_default=True,
    help="What a line is for. Can be given more than once.",
)
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d"]),
    help="First day (UTC), such as 2026-11-01; default: the first of this month. Usage is kept for 400 days.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
def usage(redis_url: str, by: tuple[str, ...], since: datetime.datetime | None, as_csv: bool) -> None:
    """Show what keys have used: requests, tokens, images, time of engines, and errors.

    \b
    vinoqueue usage
    vinoqueue usage --by key --by model --since 2026-11-01 --csv > november.csv
    """

    async def read(redis: ArqRedis) -> tuple[list[DailyUsage], dict[str, str]]:
        today = int(await store_time(redis)) // DAY
        days = range(max(_first(since, today), today + 1 - RETENTION // DAY), today + 1)
        keys, teams = await stored_records(redis, ApiKey), await stored_records(redis, Team)
        names = {one.id: one.name for one in (*decoded_records(keys, ApiKey), *decoded_records(teams, Team))}
        stored = await read_days(redis, days)
        return [one for day, of_day in zip(days, stored, strict=True) for one in decoded(day, of_day)], names

    found, names = read_store(redis_url, read)
    sums = summed(found, lambda one: tuple(_GROUPS[group](one) for group in by))
    head, rows = [*by, *_COUNTS], []
    for group, counts in sorted(sums.items()):
        rows.append([*group, *map(str, msgspec.structs.astuple(counts))])
    for named in [name for name in ("key", "team") if name in by]:
        at = head.index(named)
        head.insert(at + 1, "name" if named == "key" else "team name")
        for row in rows:
            row.insert(at + 1, names.get(row[at], ""))
    if as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([head, *(map(escaped, row) for row in rows)])
    else:
        shown = [[escaped(cell) or "-" for cell in row] for row in rows]
        echo(aligned(Table([name.replace("_", " ") for name in head], shown, "Nothing was used.")))


def _first(since: datetime.datetime | None, today: int) -> int:
    first = since.date() if since is not None else (_EPOCH + datetime.timedelta(days=today)).replace(day=1)
    return (first - _EPOCH).days


def _date(day: int) -> str:
    return (_EPOCH + datetime.timedelta(days=day)).isoformat()
