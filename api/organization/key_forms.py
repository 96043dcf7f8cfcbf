"""Bodies and JSON of keys (``/v1/organization/admin_api_keys``) and of teams (``/v1/organization/projects``): OpenAI's
forms, with limits as further fields."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from api.dialects.base.body import decode_object
from api.dialects.base.fields import Strict
from api.dialects.base.unsupported import Refused, check_supported, supported_fields
from api.dialects.base.validation import validate
from api.keys import ApiKey, Team
from api.keys.record import LIMITS, Limited, Priority, Scope
from api.keys.secret import PREFIX
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.usage import DAY

_Count = Annotated[int | None, Field(ge=1, le=10**15)]


class _Limits(BaseModel):
    """The limits to set, or null for those to remove."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    requests_per_minute: _Count = None
    tokens_per_minute: _Count = None
    tokens_per_day: _Count = None
    tokens_per_month: _Count = None
    concurrency: _Count = None
    queue_timeout: Annotated[float | None, Field(gt=0, le=1e9)] = None
    default_max_tokens: _Count = None
    weight: Annotated[int | None, Field(ge=1, le=100)] = None


_Name = Annotated[str, Field(max_length=200)]
_NO_PLACES = Refused("This service stores nothing outside of its store.")
_Refused = Annotated[str | None, _NO_PLACES]


class UpdateApiKeyRequest(_Limits):
    """Request body of a change of a key."""

    project_id: Annotated[str | None, Field(max_length=64)] = None


class CreateApiKeyRequest(UpdateApiKeyRequest):
    """Request body of a new key."""

    name: _Name
    expires_in_seconds: Annotated[int | None, Field(ge=1, le=10**9)] = None
    models: Annotated[list[Annotated[str, Field(max_length=512)]] | None, Field(max_length=1000)] = None
    scopes: list[Scope] | None = None
    priority: Priority = "default"


class UpdateProjectRequest(_Limits):
    """Request body of a change of a team."""

    name: _Name | None = None
    external_key_id: _Refused = None
    geography: _Refused = None


class CreateProjectRequest(UpdateProjectRequest):
    """Request body of a new team."""

    name: _Name
    residency: Annotated[dict[str, Any] | None, _NO_PLACES] = None


class ProjectsQuery(Strict):
    """Query parameters of the list of teams."""

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    include_archived: bool = False


class KeysQuery(Strict):
    """Query parameters of the list."""

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "asc"


def parse_new_key(body: bytes) -> tuple[ApiKey, int | None]:
    """Return what the new key is made from, and its lifetime in seconds, if it has one.

    Raises :class:`RequestRefused`.
    """
    asked = validate(CreateApiKeyRequest, decode_object(body))
    template = ApiKey(
        id="-",
        digest="0" * 64,
        name=asked.name,
        team=asked.project_id,
        models=tuple(asked.models or ()),
        scopes=tuple(asked.scopes or ()),
        priority=asked.priority,
        **_limits(asked),
    )
    return template, asked.expires_in_seconds


def parse_key_changes(body: bytes) -> dict[str, Any]:
    """Return the fields of a key to change. Raises :class:`RequestRefused`."""
    changes = _changes(UpdateApiKeyRequest, body)
    return {"team" if name == "project_id" else name: value for name, value in changes.items()}


def parse_new_team(body: bytes) -> Team:
    """Return what the new team is made from. Raises :class:`RequestRefused`."""
    asked = validate(CreateProjectRequest, decode_object(body))
    check_supported(asked)
    return Team(id="-", name=asked.name, **_limits(asked))


def parse_team_changes(body: bytes) -> dict[str, Any]:
    """Return the fields of a team to change. Raises :class:`RequestRefused`."""
    return {
        name: value for name, value in _changes(UpdateProjectRequest, body).items() if (name, value) != ("name", None)
    }


def _limits(asked: _Limits) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in LIMITS}


def _changes(form: type[_Limits], body: bytes) -> dict[str, Any]:
    asked = validate(form, decode_object(body))
    check_supported(asked)
    changes = asked.model_dump(exclude_unset=True, include={*supported_fields(form)})
    if not changes:
        names = ", ".join(sorted(supported_fields(form)))
        raise refuse(ProblemKind.INVALID, f"Nothing to change: send one of {names}, or null to remove a limit.")
    return changes


def render(one: Limited, spent: Mapping[int, int], now: float, *, secret: str = "") -> dict[str, Any]:
    """Return a key or a team as a JSON object. ``spent`` are its tokens by day. Only a new key has its ``secret``."""
    today = int(now) // DAY
    first = today - datetime.fromtimestamp(now, UTC).day + 1
    return {
        "object": "organization.admin_api_key" if isinstance(one, ApiKey) else "organization.project",
        "id": one.id,
        "name": one.name,
        "created_at": int(one.created),
        **(_key_fields(one) if isinstance(one, ApiKey) else _team_fields(one)),
        **{name: getattr(one, name) for name in LIMITS},
        "tokens_used_today": spent.get(today, 0),
        "tokens_used_this_month": sum(tokens for day, tokens in spent.items() if day >= first),
        **({"value": secret} if secret else {}),
    }


def _team_fields(team: Team) -> dict[str, Any]:
    return {
        "archived_at": None if team.archived is None else int(team.archived),
        "status": "active" if team.archived is None else "archived",
    }


def _key_fields(key: ApiKey) -> dict[str, Any]:
    return {
        "redacted_value": f"{PREFIX}***",
        "expires_at": None if key.expires is None else int(key.expires),
        "last_used_at": None,
        "owner": {"type": "service_account", "object": "organization.service_account", "id": key.id, "name": key.name},
        "project_id": key.team,
        "models": key.models,
        "scopes": key.scopes,
        "priority": key.priority,
    }


def render_deleted(key_id: str) -> bytes:
    return msgspec.json.encode({"object": "organization.admin_api_key.deleted", "id": key_id, "deleted": True})


def not_found(of: type[Limited], record_id: str) -> RequestRefused:
    if of is ApiKey:
        return refuse(ProblemKind.NOT_FOUND, f"No API key found with id '{record_id[:64]}'.", param="key_id")
    return refuse(ProblemKind.NOT_FOUND, f"No project found with id '{record_id[:64]}'.", param="project_id")
