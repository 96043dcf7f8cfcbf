"""Routes of OpenAI's administration API."""

from functools import partial

from quart import Response, request
from redis.asyncio import Redis

from api.base.store_errors import store_errors
from api.dialects.base.query import validate_query
from api.http.bodies import BodyParser
from api.http.exchange import is_admin, key_owner
from api.http.routes import STORE_ERRORS, json_response, route
from api.organization import usage_forms
from api.organization.usage import read_days
from shared.protocol.usage import DAY
from shared.redis.clock import store_time


class UsageHandler:
    """What keys have used."""

    def __init__(self, redis: Redis, parser: BodyParser) -> None:
        self._redis = redis
        self._parser = parser

    @route(
        "GET",
        "/v1/organization/usage/completions",
        "usageCompletions",
        query=usage_forms.UsageQuery,
        errors=(*STORE_ERRORS, 429),
    )
    async def completions(self) -> Response:
        """Return the usage of each day. A key without the scope admin sees its own."""
        wanted = validate_query(usage_forms.UsageQuery, request.args)
        usage_forms.check_usage(wanted)
        async with store_errors():
            days, more = usage_forms.days_of(wanted, int(await store_time(self._redis)) // DAY)
            stored = await read_days(self._redis, days)
        owner = None if is_admin() else key_owner()
        render = partial(usage_forms.render_usage, wanted, days, stored, owner, more=more)
        size = sum(len(name) + len(counts) for day in stored for name, counts in day.items())
        return json_response(await self._parser.run(key_owner(), size, render))
