"""The query of ``/v1/organization/usage/completions`` and its pages, in OpenAI's form."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from api.dialects.base.fields import Strict
from api.dialects.base.unsupported import Only, Refused, check_supported, unsupported_value
from api.organization.usage import DailyUsage, Stored, decoded, summed
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.usage import DAY, UsageCounts

_NO_USERS = Refused("This server has no users; group by 'api_key_id'.")
_PAGE = "page_"
_LAST_DAY = 10**6

_GROUPS: dict[str, Callable[[DailyUsage], Any]] = {
    "api_key_id": lambda usage: usage.key or None,
    "project_id": lambda usage: usage.team or None,
    "model": lambda usage: usage.model,
    "batch": lambda usage: usage.batch,
}
"""The fields by which usage can be grouped."""

Group = Literal["project_id", "user_id", "api_key_id", "model", "batch", "service_tier", "api_source"]


class UsageQuery(Strict):
    """Query parameters of the usage of completions. Times are Unix seconds."""

    start_time: Annotated[int, Field(ge=0, lt=_LAST_DAY * DAY)]
    end_time: Annotated[int | None, Field(ge=0, lt=_LAST_DAY * DAY)] = None
    bucket_width: Annotated[Literal["1m", "1h", "1d"], Only(("1d",), "Usage is counted by day.")] = "1d"
    group_by: list[Group] | None = None
    models: list[str] | None = None
    api_key_ids: list[str] | None = None
    batch: bool | None = None
    project_ids: list[str] | None = None
    user_ids: Annotated[list[str] | None, _NO_USERS] = None
    limit: Annotated[int, Field(ge=1, le=31)] = 7
    page: str | None = None


def check_usage(wanted: UsageQuery) -> None:
    """Raise :class:`RequestRefused` for a parameter or value that is not supported."""
    check_supported(wanted)
    for name in wanted.group_by or ():
        if name not in _GROUPS:
            raise unsupported_value("group_by", name, Only(tuple(_GROUPS), "Usage is counted by these."))


def days_of(wanted: UsageQuery, today: int) -> tuple[range, bool]:
    """Return the days of the page that is asked for, and whether there are more. ``today`` is the current day.

    Raises :class:`RequestRefused` for an unknown page.
    """
    first = wanted.start_time // DAY
    end = today + 1 if wanted.end_time is None else min(today + 1, -(-wanted.end_time // DAY))
    if wanted.page is not None:
        number = wanted.page.removeprefix(_PAGE)
        known = number.isascii() and number.isdigit() and len(number) <= len(str(_LAST_DAY))
        if not (known and first <= int(number) <= end):
            message = f"Invalid 'page': '{wanted.page[:64]}' is not the 'next_page' of an earlier page of this query."
            raise refuse(ProblemKind.INVALID, message, param="page", code="invalid_value")
        first = int(number)
    last = min(end, first + wanted.limit)
    return range(first, last), last < end


def render_usage(
    wanted: UsageQuery, days: Sequence[int], stored: Sequence[Stored], owner: str | None, *, more: bool
) -> bytes:
    """Encode a page: a bucket for each of ``days``. ``owner`` is the only key whose usage is shown, None for all."""

    def shown(usage: DailyUsage) -> bool:
        return (
            (owner is None or usage.key == owner)
            and (wanted.api_key_ids is None or usage.key in wanted.api_key_ids)
            and (wanted.project_ids is None or usage.team in wanted.project_ids)
            and (wanted.models is None or usage.model in wanted.models)
            and (wanted.batch is None or usage.batch == wanted.batch)
        )

    groups = [name for name in _GROUPS if name in (wanted.group_by or ())]
    buckets = [
        {
            "object": "bucket",
            "start_time": day * DAY,
            "end_time": (day + 1) * DAY,
            "results": _results(filter(shown, decoded(day, of_day)), groups),
        }
        for day, of_day in zip(days, stored, strict=True)
    ]
    next_page = f"{_PAGE}{days[-1] + 1}" if more else None
    return msgspec.json.encode({"object": "page", "data": buckets, "has_more": more, "next_page": next_page})


def _results(found: Iterable[DailyUsage], groups: Sequence[str]) -> list[dict[str, Any]]:
    sums = summed(found, lambda usage: tuple(_GROUPS[name](usage) for name in groups))
    return [
        _result(counts) | dict(zip(groups, values, strict=True))
        for values, counts in sorted(sums.items(), key=lambda one: [str(value) for value in one[0]])
    ]


def _result(counts: UsageCounts) -> dict[str, Any]:
    """Return a result in OpenAI's form. The last four fields are this service's own."""
    return {
        "object": "organization.usage.completions.result",
        "input_tokens": counts.prompt_tokens,
        "input_cached_tokens": counts.cached_tokens,
        "input_uncached_tokens": counts.prompt_tokens - counts.cached_tokens,
        "output_tokens": counts.completion_tokens,
        "input_audio_tokens": 0,
        "output_audio_tokens": 0,
        "num_model_requests": counts.requests,
        **dict.fromkeys(("project_id", "user_id", "api_key_id", "model", "batch", "service_tier", "api_source")),
        "output_reasoning_tokens": counts.reasoning_tokens,
        "num_images": counts.images,
        "engine_seconds": counts.engine_ms / 1000,
        "num_errors": counts.errors,
    }
