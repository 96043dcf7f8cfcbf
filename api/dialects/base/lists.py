"""Pages of lists in OpenAI's form."""

from collections.abc import Sequence
from typing import Any

import msgspec

from api.dialects.base.body import json_text
from api.records.paging import unknown_cursor


def render_list(items: Sequence[object], ids: Sequence[str], *, more: bool) -> bytes:
    """Encode a page of ``items``, whose ids are ``ids``. ``more``: there are further pages."""
    return msgspec.json.encode(
        {
            "object": "list",
            "data": items,
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
            "has_more": more,
        }
    )


def render_page(items: Sequence[dict[str, Any]], *, after: str | None, limit: int) -> bytes:
    """Encode the page of up to ``limit`` of ``items`` that follow the one with the id ``after``.

    Raises :class:`RequestRefused` if there is no such item.
    """
    ids = [item["id"] for item in items]
    page = find_page(ids, after=after, limit=limit)
    return render_list([msgspec.Raw(dump(item)) for item in items[page]], ids[page], more=len(ids) > page.stop)


def find_page(ids: Sequence[str], *, after: str | None, limit: int) -> slice:
    """Return where the page of up to ``limit`` items is that follow the one with the id ``after``.

    Raises :class:`RequestRefused` if there is no such item.
    """
    if after is not None and after not in ids:
        raise unknown_cursor(after)
    start = 0 if after is None else ids.index(after) + 1
    return slice(start, start + limit)


def render_deleted(own_id: str, kind: str) -> bytes:
    return msgspec.json.encode({"id": own_id, "object": kind, "deleted": True})


def dump(value: object) -> bytes:
    """Encode what :func:`json.loads` has decoded: msgspec refuses large integers."""
    return json_text(value).encode()
