"""The query of ``/v1/organization/audit_logs`` and its pages, in OpenAI's form."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from api.dialects.base.fields import Strict
from api.dialects.base.lists import render_list
from api.dialects.base.unsupported import Only, Refused, check_supported, unsupported_value
from api.keys.audit import Change
from api.records.paging import unknown_cursor

EVENTS = (
    "api_key.created",
    "api_key.updated",
    "api_key.deleted",
    "api_key.rotated",
    "project.created",
    "project.updated",
    "project.archived",
    "batch.cancelled",
    "worker.drain",
    "worker.resume",
    "model.load",
    "model.unload",
)
"""The types of the changes that are logged. OpenAI's service has those of keys, but for rotations, and of projects."""

_ID = "audit_log-"
_POSITION = re.compile("[1-9][0-9]{0,17}-(0|[1-9][0-9]{0,17})")
"""Ids of a stream in the store: no time is 0, and none comes near the largest that the store takes."""
_Time = Annotated[int | None, Field(ge=0)]
_List = Annotated[list[str] | None, Field(max_length=100)]


class EffectiveAt(Strict):
    """A range of times in Unix seconds."""

    gt: _Time = None
    gte: _Time = None
    lt: _Time = None
    lte: _Time = None


class AuditQuery(Strict):
    """Query parameters of the audit log."""

    effective_at: EffectiveAt | None = None
    event_types: _List = None
    actor_ids: _List = None
    resource_ids: _List = None
    project_ids: Annotated[list[str] | None, Refused("Changes belong to no project; use 'resource_ids'.")] = None
    actor_emails: Annotated[list[str] | None, Refused("This server has no users; use 'actor_ids'.")] = None
    tenant_only: Annotated[bool | None, Refused("This server has one tenant.", neutral=(False,))] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: str | None = None
    before: str | None = None


def check_audit(wanted: AuditQuery) -> None:
    """Raise :class:`RequestRefused` for a parameter or value that is not supported."""
    check_supported(wanted)
    for name in wanted.event_types or ():
        if name not in EVENTS:
            raise unsupported_value("event_types", name, Only(EVENTS, "These changes are logged."))


def position(cursor: str) -> str:
    """Return the id in the store of the entry that a cursor names. Raises :class:`RequestRefused`."""
    found = cursor.removeprefix(_ID)
    if not _POSITION.fullmatch(found):
        raise unknown_cursor(cursor)
    return found


def matches(wanted: AuditQuery, change: Change) -> bool:
    """Return whether a change is one of those that are asked for."""
    at, limits = int(change.at), wanted.effective_at or EffectiveAt()
    return (
        (limits.gt is None or at > limits.gt)
        and (limits.gte is None or at >= limits.gte)
        and (limits.lt is None or at < limits.lt)
        and (limits.lte is None or at <= limits.lte)
        and (wanted.event_types is None or _type(change) in wanted.event_types)
        and (wanted.actor_ids is None or _actor_id(change) in wanted.actor_ids)
        and (wanted.resource_ids is None or change.target in wanted.resource_ids)
    )


def render_changes(changes: Sequence[Change], *, more: bool) -> bytes:
    """Encode a page of ``changes``."""
    return render_list([_event(change) for change in changes], [_ID + change.id for change in changes], more=more)


def _type(change: Change) -> str:
    """Return the type of a change in OpenAI's words, where a team is a project."""
    return change.action.replace("team.", "project.")


def _actor_id(change: Change) -> str:
    kind, _, name = change.actor.partition(" ")
    return name or kind


def _event(change: Change) -> dict[str, Any]:
    actor, kind = _actor_id(change), _type(change)
    details = {"data" if kind.endswith("created") else "changes_requested": change.details} if change.details else {}
    if change.actor.startswith("key "):
        account = {"id": actor, "type": "service_account", "service_account": {"id": actor}}
        by: dict[str, Any] = {"type": "api_key", "api_key": account}
    else:  # A command, or a request without a key.
        by = {"type": "session", "session": {"user": {"id": actor}}}
    return {
        "object": "organization.audit_log",
        "id": _ID + change.id,
        "type": kind,
        "effective_at": int(change.at),
        "actor": by,
        kind: {"id": change.target, **details},
    }
