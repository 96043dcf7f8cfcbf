"""Options, lines and errors that the commands for keys and teams share."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from redis.asyncio import Redis

from api.keys.record import InvalidRecord, Limited
from api.keys.store import KINDS, TooManyRecords, UnknownRecord, UnreadableRecord
from cli.base.output import echo
from cli.base.store_reader import read_store
from shared.runtime.logs import escaped

_Result = TypeVar("_Result")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[float]):
    """A duration as an integer with a unit: 90s, 15m, 12h or 30d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+)([smhd])", str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration such as 90s, 15m, 12h or 30d.", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


LIMIT_OPTIONS = [
    click.Option(["--requests-per-minute"], type=click.IntRange(1), help="Maximum requests per minute."),
    click.Option(
        ["--tokens-per-minute"], type=click.IntRange(1), help="Maximum prompt and completion tokens per minute."
    ),
    click.Option(
        ["--tokens-per-day"],
        type=click.IntRange(1),
        help="Budget: maximum prompt and completion tokens per day (UTC), those of batches included.",
    ),
    click.Option(["--tokens-per-month"], type=click.IntRange(1), help="Budget: the same per calendar month."),
    click.Option(["--concurrency"], type=click.IntRange(1), help="Maximum number of requests in flight."),
    click.Option(
        ["--queue-timeout"], type=Duration(), help="Maximum time its requests wait in the queue, such as 30s."
    ),
    click.Option(
        ["--default-max-tokens"], type=click.IntRange(1), help="Maximum tokens of each output whose request sets none."
    ),
    click.Option(["--weight"], type=click.IntRange(1, 100), help="Share in fair queueing; default: 1."),
]
LIMITS = [option.opts[0].removeprefix("--") for option in LIMIT_OPTIONS]


def changes_of(given: Mapping[str, Any], remove: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields to change: those ``given``, and None for those to ``remove``.

    Raises :class:`click.UsageError` if there are none.
    """
    changes = {name: value for name, value in given.items() if value is not None}
    changes |= {name.replace("-", "_"): None for name in remove}
    if not changes:
        raise click.UsageError(f"Nothing to change: give a limit such as --{LIMITS[0]}, or --remove.")
    return changes


def limit_words(one: Limited) -> list[str]:
    """Return the limits of a key or a team in words."""
    limits = [
        ("rpm", one.requests_per_minute),
        ("tpm", one.tokens_per_minute),
        ("tokens/day", one.tokens_per_day),
        ("tokens/month", one.tokens_per_month),
        ("at a time", one.concurrency),
    ]
    words = [f"{limit} {unit}" for unit, limit in limits if limit is not None]
    if one.queue_timeout is not None:
        words.append(f"waits {one.queue_timeout:g} s")
    if one.default_max_tokens is not None:
        words.append(f"{one.default_max_tokens} tokens by default")
    if one.weight is not None:
        words.append(f"weight {one.weight}")
    return words


def show_unreadable(stored: Mapping[bytes, bytes], found: Sequence[Limited]) -> None:
    """Print the ids of the ``stored`` records that are not among those ``found``: they can't be read."""
    for record_id in sorted(stored.keys() - {one.id.encode() for one in found}):
        echo(escaped(f"{record_id.decode(errors='replace')}  unreadable, not used"), err=True)


def with_store(redis_url: str, work: Callable[[Redis], Awaitable[_Result]]) -> _Result:
    """Return the result of ``work`` with the store.

    Raises :class:`click.ClickException` for unknown keys and teams, and for values that their records cannot have.
    """
    try:
        with refused_values():
            return read_store(redis_url, work)
    except UnknownRecord as error:
        word = KINDS[error.of].word
        raise click.ClickException(f"{error} 'vinoqueue {word} list' lists the {word}s.") from None
    except (TooManyRecords, UnreadableRecord) as error:
        raise click.ClickException(str(error)) from None


@contextmanager
def refused_values() -> Iterator[None]:
    """Name the option of a value that a record cannot have. Raises :class:`click.BadParameter`."""
    try:
        yield
    except InvalidRecord as error:
        name = _OPTIONS.get(error.field, error.field).replace("_", "-")
        raise click.BadParameter(f"{error.reason}.", param_hint=f"'--{name}'") from None


_OPTIONS = {"previous_until": "grace"}
"""The options of fields that have another name."""
