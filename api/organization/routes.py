"""Routes of OpenAI's administration API."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from quart import Response, request
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from api.base.store_errors import store_errors
from api.dialects.base.lists import find_page, render_list
from api.dialects.base.query import validate_query
from api.http.bodies import BodyParser
from api.http.exchange import actor, current_exchange, is_admin, key_owner, require_admin
from api.http.routes import STORE_ERRORS, json_response, route
from api.keys import ApiKey, Keyring
from api.keys.store import TooManyKeys, UnknownKey, change, create, decoded, revoke, stored_key, stored_keys
from api.organization import key_forms, usage_forms
from api.organization.usage import read_days
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.usage import DAY
from shared.redis import keys
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


_PATH = "/v1/organization/admin_api_keys"
_ERRORS = (*STORE_ERRORS, 403)
_BODY_ERRORS = (*_ERRORS, 408, 413, 415, 429)


class KeysHandler:
    """The API keys in the store. Those in files and in the environment are not managed here."""

    def __init__(self, redis: Redis, keyring: Keyring, parser: BodyParser) -> None:
        self._redis = redis
        self._keyring = keyring
        self._parser = parser

    @route("GET", _PATH, "listAdminApiKeys", query=key_forms.KeysQuery, errors=_ERRORS)
    async def list(self) -> Response:
        """List the API keys that are not revoked, paginated."""
        _require_key()
        wanted = validate_query(key_forms.KeysQuery, request.args)
        async with store_errors():
            found = [key for key in decoded(await stored_keys(self._redis)) if key.revoked is None]
            found.sort(key=lambda key: (key.created, key.id), reverse=wanted.order == "desc")
            ids = [key.id for key in found]
            page = find_page(ids, after=wanted.after, limit=wanted.limit)
            shown = await self._rendered(found[page])
        return json_response(render_list(shown, ids[page], more=len(ids) > page.stop))

    @route("POST", _PATH, "createAdminApiKey", body="CreateApiKeyRequest", errors=_BODY_ERRORS)
    async def create(self) -> Response:
        """Create an API key. The response has its secret, which is not shown again."""
        _require_key()
        async with store_errors():
            now = await store_time(self._redis)
        template = await self._parser.read(request, key_owner(), partial(key_forms.parse_new_key, now=now))
        async with self._changing():
            made, secret = await create(self._redis, template, by=actor())
        return json_response(msgspec.json.encode(key_forms.render_key(made, {}, now, secret=secret)))

    @route("GET", f"{_PATH}/<key_id>", "retrieveAdminApiKey", errors=_ERRORS)
    async def get(self, key_id: str) -> Response:
        """Describe an API key."""
        _require_key()
        return await self._described(await self._find(key_id))

    @route("POST", f"{_PATH}/<key_id>", "updateAdminApiKey", body="UpdateApiKeyRequest", errors=_BODY_ERRORS)
    async def update(self, key_id: str) -> Response:
        """Change the limits and budgets of an API key."""
        _require_key()
        changes = await self._parser.read(request, key_owner(), key_forms.parse_changes)
        await self._find(key_id)
        async with self._changing():
            changed = await change(self._redis, key_id, changes, by=actor())
        return await self._described(changed)

    @route("DELETE", f"{_PATH}/<key_id>", "deleteAdminApiKey", errors=_ERRORS)
    async def delete(self, key_id: str) -> Response:
        """Revoke an API key."""
        _require_key()
        await self._find(key_id)
        async with self._changing():
            await revoke(self._redis, key_id, by=actor())
        return json_response(key_forms.render_deleted(key_id))

    async def _find(self, key_id: str) -> ApiKey:
        async with store_errors():
            try:
                key = await stored_key(self._redis, key_id)
            except UnknownKey:
                raise key_forms.not_found(key_id) from None
        if key.revoked is not None:
            raise key_forms.not_found(key_id)
        return key

    async def _described(self, key: ApiKey) -> Response:
        async with store_errors():
            (shown,) = await self._rendered([key])
        return json_response(msgspec.json.encode(shown))

    async def _rendered(self, found: Sequence[ApiKey]) -> Sequence[dict[str, Any]]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for key in found:
                pipe.hgetall(keys.spent(key.id))
            pipe.time()
            *spent, (now, _) = await pipe.execute()
        return [
            key_forms.render_key(key, {int(day): int(tokens) for day, tokens in days.items()}, now)
            for key, days in zip(found, spent, strict=True)
        ]

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Change a key; this replica knows the change at once. Raises :class:`RequestRefused`."""
        async with store_errors():
            try:
                yield
            except NoPermissionError:
                raise refuse(
                    ProblemKind.FORBIDDEN,
                    "The store's access rules do not allow API replicas to change keys. The operator can add "
                    "'~vinoqueue:keys' to them, or use 'vinoqueue key'.",
                    code="insufficient_permissions",
                ) from None
            except TooManyKeys as error:
                raise refuse(ProblemKind.INVALID, str(error), code="too_many_keys") from None
            await self._keyring.refresh()


def _require_key() -> None:
    """Check that the current request has a key with the scope admin. Raises :class:`RequestRefused`.

    While the service is open, nobody may close it by a first key.
    """
    require_admin()
    if current_exchange().key is None:
        raise refuse(
            ProblemKind.FORBIDDEN,
            "This service has no API keys yet. Its operator can make the first one with 'vinoqueue key create --scope "
            "admin'.",
            code="insufficient_permissions",
        )
