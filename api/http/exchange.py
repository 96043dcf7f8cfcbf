"""HTTP exchanges: what hooks, routes, error handlers and the request log share about one request and its response."""

import re
import uuid
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol, cast

from quart import Request, request

from api.dialects.base.interface import Dialect
from api.http.bodies import PacedBody
from api.keys import ApiKey
from api.limits import Counts, LimitName
from shared.protocol.errors import ProblemKind, refuse
from shared.tracing import Span

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class ExchangeDetails(Protocol):
    """What a route adds to the log and to the headers of its response."""

    counts: Mapping[LimitName, Counts]
    """The state of the key's rate limits."""

    @property
    def outcome(self) -> str:
        """How the request has ended: a finish reason or the kind of a problem. Empty if it was not accepted."""

    def log_fields(self) -> Mapping[str, object]:
        """Return further fields of the request log. ``None`` is omitted."""


class HttpExchange:
    """One HTTP request and its response, and the owner of the resources that its route has entered."""

    # One instance per open stream.
    __slots__ = (
        "_resources",
        "details",
        "dialect",
        "id",
        "key",
        "method",
        "path",
        "problem",
        "span",
        "started_at",
        "status",
    )

    def __init__(self, request: Request, dialect: Dialect, request_id: str, *, started_at: float, span: Span) -> None:
        """``started_at`` is the time of the request (monotonic seconds)."""
        self.id = request_id
        self.started_at = started_at
        self.span = span
        self.method = request.method
        self.path = cast(ExchangeRequest, request).sent_path
        self.dialect = dialect
        self._resources: list[AbstractAsyncContextManager[object]] = []
        self.key: ApiKey | None = None
        """The API key of the request; None if the service requires none."""
        self.details: ExchangeDetails | None = None
        """The details of the request, if its route has any."""
        self.problem: ProblemKind | None = None
        """Why the response is an error, if it is."""
        self.status: int | None = None
        """HTTP status; None until the response has started."""

    async def enter(self, resource: AbstractAsyncContextManager[object]) -> None:
        """Enter ``resource``; it is left when the response is complete or the client has disconnected."""
        await resource.__aenter__()
        self._resources.append(resource)

    async def close(self) -> None:
        """Exit all resources in reverse order. Raises what they raise."""
        # Only now, because an exit stack for each open stream would take a kilobyte.
        async with AsyncExitStack() as stack:
            for resource in self._resources:
                stack.push_async_exit(resource)


class ExchangeRequest(Request):
    """A Quart request with its exchange."""

    body_class = PacedBody
    exchange: HttpExchange
    sent_path: str
    """The path that the client has sent. ``path`` is the one that serves it."""
    deployment: str | None
    """The model in an Azure OpenAI path."""


def request_id_of(request: Request) -> str:
    """Return the id that the client has given to its request, or a new one."""
    wanted = request.headers.get("x-request-id", "")
    return wanted if _SANE_ID.fullmatch(wanted) else f"req_{uuid.uuid4().hex}"


def current_exchange() -> HttpExchange:
    """Return the exchange of the current request."""
    return cast(ExchangeRequest, request).exchange


def sees_fleet() -> bool:
    """Return whether the current request's key has the scope ``admin``, if requests need a key."""
    key = current_exchange().key
    return key is None or "admin" in key.scopes


def require_admin() -> None:
    """Check that the current request may see the state of the service. Raises :class:`RequestRefused`."""
    if not sees_fleet():
        raise refuse(
            ProblemKind.FORBIDDEN,
            "You have insufficient permissions for this operation. Missing scopes: admin. The operator of this service "
            "can make a key with 'vinoqueue key create --scope admin'.",
            code="insufficient_permissions",
        )


def key_owner() -> str:
    """Return the owner of what the current request stores and reads: the id of its API key, or empty without one."""
    key = current_exchange().key
    return key.id if key is not None else ""
