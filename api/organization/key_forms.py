"""Bodies and JSON of ``/v1/organization/admin_api_keys``: OpenAI's form, with the limits of keys as further fields."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from api.dialects.base.body import decode_object
from api.dialects.base.fields import Strict
from api.dialects.base.validation import validate
from api.keys import ApiKey
from api.keys.record import Priority, Scope
from api.keys.secret import PREFIX
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.usage import DAY

_Count = Annotated[int | None, Field(ge=1, le=10**15)]


class UpdateApiKeyRequest(Strict):
    """Request body of a change: the limits to set, or null for those to remove."""

    requests_per_minute: _Count = None
    tokens_per_minute: _Count = None
    tokens_per_day: _Count = None
    tokens_per_month: _Count = None
    concurrency: _Count = None
    queue_timeout: Annotated[float | None, Field(gt=0, le=1e9)] = None
    default_max_tokens: _Count = None


_LIMITS = tuple(UpdateApiKeyRequest.model_fields)


class CreateApiKeyRequest(UpdateApiKeyRequest):
    """Request body of a new key."""

    name: Annotated[str, Field(max_length=200)]
    expires_in_seconds: Annotated[int | None, Field(ge=1, le=10**9)] = None
    models: list[Annotated[str, Field(max_length=512)]] | None = None
    scopes: list[Scope] | None = None
    priority: Priority = "default"


class KeysQuery(Strict):
    """Query parameters of the list."""

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "asc"


def parse_new_key(body: bytes, *, now: float) -> ApiKey:
    """Return what the new key is made from. Raises :class:`RequestRefused`."""
    asked = validate(CreateApiKeyRequest, decode_object(body))
    lifetime = asked.expires_in_seconds
    return ApiKey(
        id="-",
        digest="0" * 64,
        name=asked.name,
        models=tuple(asked.models or ()),
        scopes=tuple(asked.scopes or ()),
        priority=asked.priority,
        expires=None if lifetime is None else float(int(now) + lifetime),
        **{name: getattr(asked, name) for name in _LIMITS},
    )


def parse_changes(body: bytes) -> dict[str, Any]:
    """Return the fields to change. Raises :class:`RequestRefused`."""
    changes = validate(UpdateApiKeyRequest, decode_object(body)).model_dump(exclude_unset=True)
    if not changes:
        raise refuse(ProblemKind.INVALID, f"Nothing to change: send one of {', '.join(_LIMITS)}, or null to remove it.")
    return changes


def render_key(key: ApiKey, spent: Mapping[int, int], now: float, *, secret: str = "") -> dict[str, Any]:
    """Return a key as a JSON object. ``spent`` are its tokens by day. Only a new key has its ``secret``."""
    today = int(now) // DAY
    first = today - datetime.fromtimestamp(now, UTC).day + 1
    shown = {
        "object": "organization.admin_api_key",
        "id": key.id,
        "name": key.name,
        "redacted_value": f"{PREFIX}***",
        "created_at": int(key.created),
        "expires_at": None if key.expires is None else int(key.expires),
        "last_used_at": None,
        "owner": {"type": "service_account", "object": "organization.service_account", "id": key.id, "name": key.name},
        "models": key.models,
        "scopes": key.scopes,
        "priority": key.priority,
        **{name: getattr(key, name) for name in _LIMITS},
        "tokens_used_today": spent.get(today, 0),
        "tokens_used_this_month": sum(tokens for day, tokens in spent.items() if day >= first),
    }
    return shown | ({"value": secret} if secret else {})


def render_deleted(key_id: str) -> bytes:
    return msgspec.json.encode({"object": "organization.admin_api_key.deleted", "id": key_id, "deleted": True})


def not_found(key_id: str) -> RequestRefused:
    return refuse(ProblemKind.NOT_FOUND, f"No API key found with id '{key_id[:64]}'.", param="key_id")
