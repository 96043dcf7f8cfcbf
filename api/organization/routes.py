"""Routes of OpenAI's administration API."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec
from quart import Response, request
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from api.dialects.base.lists import find_page, render_list
from api.dialects.base.query import validate_query
from api.dialects.base.routes import Body
from api.http.bodies import BodyParser
from api.http.exchange import actor, current_exchange, is_admin, key_owner, require_admin
from api.http.routes import STORE_ERRORS, json_response, route
from api.keys import ApiKey, Keyring, Team
from api.keys.audit import read_changes
from api.keys.record import InvalidRecord, Limited
from api.keys.store import (
    TooManyRecords,
    UnknownRecord,
    UnreadableRecord,
    archive,
    change,
    create,
    create_team,
    decoded,
    revoke,
    stored_record,
    stored_records,
)
from api.organization import audit_forms, key_forms, usage_forms
from api.organization.usage import read_days
from api.records.errors import store_errors
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.usage import DAY
from shared.redis import keys
from shared.redis.clock import store_time

_Record = TypeVar("_Record", ApiKey, Team)


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


class AuditHandler:
    """Who changed what."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    @route(
        "GET", "/v1/organization/audit_logs", "listAuditLogs", query=audit_forms.AuditQuery, errors=(*STORE_ERRORS, 403)
    )
    async def list(self) -> Response:
        """List the changes of keys, projects, batches, workers and models, newest first, paginated."""
        _require_key()
        times = {
            name: request.args[f"effective_at[{name}]"] for name in _TIMES if f"effective_at[{name}]" in request.args
        }
        wanted = validate_query(audit_forms.AuditQuery, request.args, {"effective_at": times})
        audit_forms.check_audit(wanted)
        cursor, newest_first = wanted.after, True
        if wanted.before is not None and cursor is None:
            cursor, newest_first = wanted.before, False
        async with store_errors():
            found = await read_changes(
                self._redis,
                wanted.limit + 1,
                wanted=partial(audit_forms.matches, wanted),
                beyond=None if cursor is None else audit_forms.position(cursor),
                newest_first=newest_first,
            )
        page = found[: wanted.limit] if newest_first else found[: wanted.limit][::-1]
        return json_response(audit_forms.render_changes(page, more=len(found) > wanted.limit))


_TIMES = tuple(audit_forms.EffectiveAt.model_fields)
_KEYS, _PROJECTS = "/v1/organization/admin_api_keys", "/v1/organization/projects"
_ERRORS = (*STORE_ERRORS, 403)
_UNREADABLE = "unreadable_record"
_CHANGED_KEY, _CHANGED_PROJECT = Body(key_forms.UpdateApiKeyRequest), Body(key_forms.UpdateProjectRequest)
_BODY_ERRORS = (*_ERRORS, 408, 413, 415, 429)


class KeysHandler:
    """The API keys in the store. Those in files and in the environment are not managed here."""

    def __init__(self, redis: Redis, records: "StoredRecords", parser: BodyParser) -> None:
        self._redis = redis
        self._records = records
        self._parser = parser

    @route("GET", _KEYS, "listAdminApiKeys", query=key_forms.KeysQuery, errors=_ERRORS)
    async def list(self) -> Response:
        """List the API keys that are not revoked, paginated."""
        _require_key()
        wanted = validate_query(key_forms.KeysQuery, request.args)
        return await self._records.page(ApiKey, wanted.after, wanted.limit, newest_first=wanted.order == "desc")

    @route("POST", _KEYS, "createAdminApiKey", body=Body(key_forms.CreateApiKeyRequest), errors=_BODY_ERRORS)
    async def create(self) -> Response:
        """Create an API key. The response has its secret, which is not shown again."""
        _require_key()
        template, lifetime = await self._parser.read(request, key_owner(), key_forms.parse_new_key)
        async with self._records.changing():
            made, secret = await create(self._redis, template, lifetime=lifetime, by=actor())
        return json_response(msgspec.json.encode(key_forms.render(made, {}, made.created, secret=secret)))

    @route("GET", f"{_KEYS}/<key_id>", "retrieveAdminApiKey", errors=_ERRORS)
    async def get(self, key_id: str) -> Response:
        """Describe an API key."""
        _require_key()
        return await self._records.described(await self._records.find(ApiKey, key_id))

    @route("POST", f"{_KEYS}/<key_id>", "updateAdminApiKey", body=_CHANGED_KEY, errors=_BODY_ERRORS)
    async def update(self, key_id: str) -> Response:
        """Change the limits, budgets and project of an API key."""
        _require_key()
        changes = await self._parser.read(request, key_owner(), key_forms.parse_key_changes)
        return await self._records.changed(ApiKey, key_id, changes)

    @route("DELETE", f"{_KEYS}/<key_id>", "deleteAdminApiKey", errors=_ERRORS)
    async def delete(self, key_id: str) -> Response:
        """Revoke an API key."""
        _require_key()
        await self._records.check(ApiKey, key_id)
        async with self._records.changing():
            await revoke(self._redis, key_id, by=actor())
        return json_response(key_forms.render_deleted(key_id))


class ProjectsHandler:
    """The teams in the store, as projects. Those in files are not managed here."""

    def __init__(self, redis: Redis, records: "StoredRecords", parser: BodyParser) -> None:
        self._redis = redis
        self._records = records
        self._parser = parser

    @route("GET", _PROJECTS, "listProjects", query=key_forms.ProjectsQuery, errors=_ERRORS)
    async def list(self) -> Response:
        """List the projects, paginated: groups of API keys with limits and budgets of their own."""
        _require_key()
        wanted = validate_query(key_forms.ProjectsQuery, request.args)
        return await self._records.page(Team, wanted.after, wanted.limit, ended=wanted.include_archived)

    @route("POST", _PROJECTS, "createProject", body=Body(key_forms.CreateProjectRequest), errors=_BODY_ERRORS)
    async def create(self) -> Response:
        """Create a project."""
        _require_key()
        template = await self._parser.read(request, key_owner(), key_forms.parse_new_team)
        async with self._records.changing():
            made = await create_team(self._redis, template, by=actor())
        return await self._records.described(made)

    @route("GET", f"{_PROJECTS}/<project_id>", "retrieveProject", errors=_ERRORS)
    async def get(self, project_id: str) -> Response:
        """Describe a project."""
        _require_key()
        return await self._records.described(await self._records.find(Team, project_id, ended=True))

    @route("POST", f"{_PROJECTS}/<project_id>", "updateProject", body=_CHANGED_PROJECT, errors=_BODY_ERRORS)
    async def update(self, project_id: str) -> Response:
        """Change the name, limits and budgets of a project."""
        _require_key()
        changes = await self._parser.read(request, key_owner(), key_forms.parse_team_changes)
        return await self._records.changed(Team, project_id, changes)

    @route("POST", f"{_PROJECTS}/<project_id>/archive", "archiveProject", errors=_ERRORS)
    async def archive(self, project_id: str) -> Response:
        """Archive a project. Its API keys cannot be used any more."""
        _require_key()
        await self._records.check(Team, project_id)
        async with self._records.changing():
            archived = await archive(self._redis, project_id, by=actor())
        return await self._records.described(archived)


class StoredRecords:
    """Reads and changes keys and teams in the store for HTTP requests."""

    def __init__(self, redis: Redis, keyring: Keyring) -> None:
        self._redis = redis
        self._keyring = keyring

    async def page(
        self,
        of: type[_Record],
        after: str | None,
        limit: int,
        *,
        newest_first: bool = False,
        ended: bool = False,
    ) -> Response:
        """Respond with a page of records, in the order in which they were made. ``ended`` ones are revoked or archived.

        Raises :class:`RequestRefused`.
        """
        async with store_errors():
            found = decoded(await stored_records(self._redis, of), of)
            found.sort(key=lambda one: (one.created, one.id), reverse=newest_first)
            # Ended ones keep their place: a client may walk the list and end each.
            start = find_page([one.id for one in found], after=after, limit=limit).start
            rest = [one for one in found[start:] if ended or one.ended is None]
            shown = await self._rendered(rest[:limit])
        return json_response(render_list(shown, [one.id for one in rest[:limit]], more=len(rest) > limit))

    async def find(self, of: type[_Record], record_id: str, *, ended: bool = False) -> _Record:
        """Return a record. Raises :class:`RequestRefused` if there is none, or it has ended and may not have."""
        async with store_errors():
            try:
                found = await stored_record(self._redis, of, record_id)
            except UnknownRecord:
                raise key_forms.not_found(of, record_id) from None
            except UnreadableRecord as error:
                raise refuse(ProblemKind.INVALID, str(error), code=_UNREADABLE) from None
        if found.ended is not None and not ended:
            raise key_forms.not_found(of, record_id)
        return found

    async def check(self, of: type[_Record], record_id: str) -> None:
        """Check that a record may be changed; one that cannot be read may. Raises :class:`RequestRefused`."""
        try:
            await self.find(of, record_id)
        except RequestRefused as refused:
            if refused.problem.code != _UNREADABLE:
                raise

    async def described(self, one: Limited) -> Response:
        """Respond with a record. Raises :class:`RequestRefused`."""
        async with store_errors():
            (shown,) = await self._rendered([one])
        return json_response(msgspec.json.encode(shown))

    async def changed(self, of: type[_Record], record_id: str, fields: Mapping[str, object]) -> Response:
        """Change ``fields`` of a record, and respond with it. Raises :class:`RequestRefused`."""
        await self.check(of, record_id)
        async with self.changing():
            changed = await change(self._redis, of, record_id, fields, by=actor())
        return await self.described(changed)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Change a record; this replica knows the change at once. Raises :class:`RequestRefused`."""
        async with store_errors():
            try:
                yield
            except NoPermissionError:
                raise refuse(
                    ProblemKind.FORBIDDEN,
                    "The store's access rules do not allow API replicas to change keys and teams. The operator can add "
                    "'~vinoqueue:keys ~vinoqueue:teams' to them, or use 'vinoqueue key' and 'vinoqueue team'.",
                    code="insufficient_permissions",
                ) from None
            except UnknownRecord as error:
                raise refuse(ProblemKind.INVALID, str(error), param="project_id", code="invalid_value") from None
            except TooManyRecords as error:
                raise refuse(ProblemKind.INVALID, str(error), code="too_many_records") from None
            except UnreadableRecord as error:
                raise refuse(ProblemKind.INVALID, str(error), code=_UNREADABLE) from None
            except InvalidRecord as error:
                raise refuse(ProblemKind.INVALID, str(error), param=error.field, code="invalid_value") from None
            await self._keyring.refresh()

    async def _rendered(self, found: Sequence[Limited]) -> Sequence[dict[str, Any]]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for one in found:
                pipe.hgetall(keys.spent(one.limits_id))
            pipe.time()
            *spent, (now, _) = await pipe.execute()
        return [
            key_forms.render(one, {int(day): int(tokens) for day, tokens in days.items()}, now)
            for one, days in zip(found, spent, strict=True)
        ]


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
