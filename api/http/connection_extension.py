"""The ASGI extension ``vinoqueue.connection``: what our HTTP server offers the application beyond ASGI.

``scope["extensions"]["vinoqueue.connection"]`` is a :class:`ConnectionExtension`. Other servers do not have it, and the
application works without it.
"""

from collections.abc import Callable
from typing import Any, TypedDict, cast

from quart import Request

_NAME = "vinoqueue.connection"


class ConnectionExtension(TypedDict):
    """The connection of one request."""

    over_limit: bool
    """Whether the connection exceeds the connection limits. Such connections are served only probes and metrics."""
    allow_upload: Callable[[int, float], None]
    """Allows the rest of the body of this request a total size in bytes, and a time in seconds from now."""
    ping: Callable[[bytes], None]
    """Has this event sent whenever the rest of the response has no output for some time. Each piece of the body must
    be whole events."""


def add_extension(scope: Any, extension: ConnectionExtension) -> None:
    scope.setdefault("extensions", {})[_NAME] = extension


def connection_extension(request: Request) -> ConnectionExtension | None:
    """Return the extension in the scope of ``request``; ``None`` under another server than ours."""
    extensions = cast("dict[str, Any]", request.scope).get("extensions") or {}
    return cast("ConnectionExtension | None", extensions.get(_NAME))
