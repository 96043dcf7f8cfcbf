"""``vinoqueue team``: manage teams, groups of API keys with limits of their own."""

from typing import Any

import click
import msgspec
from redis.asyncio import Redis

from api.keys import ApiKey, Team
from api.keys.store import archive, change, create_team, decoded, stored_records
from cli.base.instances import store_option
from cli.base.output import echo
from cli.base.store_reader import actor
from cli.manage.limits import LIMIT_OPTIONS, LIMITS, changes_of, limit_words, show_unreadable, with_store
from shared.runtime.logs import escaped

_STORE = store_option()


@click.group()
def team() -> None:
    """Create, list, update and archive teams: groups of API keys with limits, budgets and usage of their own.

    A request counts for its key and for the key's team. Changes reach all replicas within two seconds.
    """


@team.command(params=[_STORE, *LIMIT_OPTIONS])
@click.option("--name", default="", help="Name of the team.")
def create(redis_url: str, **attributes: Any) -> None:
    """Create a team and print its id.

    \b
    team=$(vinoqueue team create --name physics --tokens-per-day 1000000)
    vinoqueue key create --name anna --team $team
    """
    template = Team(id="-", **attributes)
    echo(with_store(redis_url, lambda redis: create_team(redis, template, by=actor())).id)


@team.command("list", params=[_STORE])
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_(redis_url: str, as_json: bool) -> None:
    """List the teams in the store, and how many valid keys each has."""

    async def read(redis: Redis) -> tuple[dict[bytes, bytes], list[ApiKey]]:
        return await stored_records(redis, Team), decoded(await stored_records(redis, ApiKey), ApiKey)

    stored, keys = with_store(redis_url, read)
    teams = decoded(stored, Team)
    teams.sort(key=lambda one: (one.created, one.id))
    if as_json:
        echo(msgspec.json.encode([msgspec.structs.asdict(one) for one in teams]).decode())
    elif not stored:
        echo("There are no teams in the store.")
    for one in () if as_json else teams:
        members = sum(key.team == one.id and key.revoked is None for key in keys)
        state = "archived" if one.archived is not None else f"{members} keys"
        echo(escaped("  ".join((one.id, state, one.name or "-", *limit_words(one)))))
    show_unreadable(stored, teams)


@team.command(params=[_STORE, *LIMIT_OPTIONS])
@click.argument("team_id", metavar="ID")
@click.option("--name", help="Name of the team.")
@click.option("--remove", type=click.Choice(LIMITS), multiple=True, help="Remove a limit. Can be given more than once.")
def update(redis_url: str, team_id: str, remove: tuple[str, ...], **fields: Any) -> None:
    """Change the name or the limits of a team.

    \b
    vinoqueue team update team-1a2b3c4d --tokens-per-day 2000000 --remove concurrency
    """
    changes = changes_of(fields, remove)
    changed = with_store(redis_url, lambda redis: change(redis, Team, team_id, changes, by=actor()))
    echo(escaped("  ".join((changed.id, changed.name or "-", *limit_words(changed)))))


@team.command("archive", params=[_STORE])
@click.argument("team_id", metavar="ID")
def archive_(redis_url: str, team_id: str) -> None:
    """Archive a team. From now on, its keys are not accepted; what it has used stays."""
    archived = with_store(redis_url, lambda redis: archive(redis, team_id, by=actor()))
    echo(f"{archived.id} is archived. Its keys can't be used any more.")
