"""HTTP exchanges: what hooks, routes and error handlers share about a request, its log line and its span."""

import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, cast

from quart import Request, request

from api.dialects.base.interface import Dialect
from api.dialects.openai import OpenAI
from api.http.bodies import PacedBody
from api.http.routes import METRICS_PATHS, OPEN_PATHS, PAGE_FOLDER
from api.keys import ApiKey
from api.limits import Counts, LimitName
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import TraceContext
from shared.runtime.logs import Fields
from shared.tracing import NO_SPAN, Span, Tracing

_UNKNOWN = OpenAI()
_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class ExchangeDetails(Protocol):
    """What a route adds to the log and to the headers of its response."""

    counts: Mapping[LimitName, Counts]
    """The state of the key's rate limits."""

    @property
    def notes(self) -> Mapping[str, str]:
        """Headers that name what has no effect in the request."""

    @property
    def outcome(self) -> str:
        """How the request has ended: a finish reason or the kind of a problem. Empty if it was not accepted."""

    def log_fields(self) -> Mapping[str, object]:
        """Return further fields of the request log. ``None`` is omitted."""


@dataclass(slots=True, eq=False, kw_only=True)
class HttpExchange:
    """One HTTP request and its response, and the owner of the resources that its route has entered."""

    id: str
    started_at: float
    """The time of the request (monotonic seconds)."""
    span: Span
    method: str
    path: str
    """The path that the client has sent."""
    dialect: Dialect = _UNKNOWN
    """The dialect that the route names."""
    key: ApiKey | None = None
    """The API key of the request; None if the service requires none."""
    details: ExchangeDetails | None = None
    """The details of the request, if its route has any."""
    problem: ProblemKind | None = None
    """Why the response is an error, if it is."""
    status: int | None = None
    """HTTP status; None until the response has started."""
    _resources: list[AbstractAsyncContextManager[object]] = field(default_factory=list)

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
    return cast(ExchangeRequest, request).exchange


def is_admin() -> bool:
    """Return whether the current request's key has the scope ``admin``, or requests need no key."""
    key = current_exchange().key
    return key is None or "admin" in key.scopes


def require_admin() -> None:
    """Check that the current request may see and change the state of the service. Raises :class:`RequestRefused`."""
    if not is_admin():
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


def actor() -> str:
    """Return who sent the current request, for the audit log."""
    return f"key {owner}" if (owner := key_owner()) else "anybody"


request_log = logging.getLogger("api.request_log")  # this name is documented in docs/logs.md

UNLOGGED = OPEN_PATHS | METRICS_PATHS
"""Paths without log lines: probes and scrapes are too frequent."""


def is_logged(path: str) -> bool:
    """Return whether exchanges on ``path`` are logged and traced. Probes, scrapes and the web page's files are not."""
    return path not in UNLOGGED and not path.startswith(PAGE_FOLDER)


def write_log(exchange: HttpExchange) -> None:
    """Log the line of a finished exchange at level INFO. Fields that do not apply are omitted."""
    if not is_logged(exchange.path) or not request_log.isEnabledFor(logging.INFO):
        return
    now = time.monotonic()
    fields: dict[str, object] = {
        "id": exchange.id,
        "method": exchange.method,
        "path": exchange.path,
        "status": exchange.status,
        "outcome": outcome_of(exchange),
        "trace_id": exchange.span.trace_id or None,
    }
    if exchange.key is not None:
        fields |= {"key": exchange.key.id, "key_name": exchange.key.name or None}
    if exchange.details is not None:
        fields |= exchange.details.log_fields()
    fields["total_ms"] = milliseconds(now - exchange.started_at)
    request_log.info("request %s", Fields(fields))


def outcome_of(exchange: HttpExchange) -> str:
    """Return the problem kind, the finish reason, or ``aborted`` when the client has disconnected before the end."""
    if exchange.problem is not None:
        return exchange.problem
    if exchange.details is not None and exchange.details.outcome:
        return exchange.details.outcome
    return "aborted" if exchange.status is None else "ok"


def milliseconds(seconds: float) -> int:
    """Return ``seconds`` as the log has them."""
    return round(seconds * 1000)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_PROBLEMS = frozenset(ProblemKind)


def begin_span(tracing: Tracing, request: Request, at: float) -> Span:
    """Begin the span of ``request`` at the time ``at``, in the client's trace if it has sent one."""
    if not tracing.enabled or not is_logged(request.path):
        return NO_SPAN
    # Several headers `traceparent` are invalid; those of `tracestate` are one list.
    parents = request.headers.getlist("traceparent")
    parent = None
    if len(parents) == 1:
        parent = TraceContext(parents[0], ",".join(request.headers.getlist("tracestate")))
    return tracing.start_span(_method(request, other="HTTP"), at, parent=parent, server=True)


def end_span(exchange: HttpExchange, request: Request) -> None:
    """End the span of ``exchange``, with the attributes of OpenTelemetry's semantic conventions for HTTP.

    As the conventions have it, refusals with a status below 500 are no errors of the server.
    """
    if exchange.span.context is None:
        return
    outcome, status = outcome_of(exchange), exchange.status or 0
    host, port = _address(request.headers.get("host", ""))
    attributes: dict[str, str | int] = {
        "http.request.method": _method(request, other="_OTHER"),
        "url.path": exchange.path,
        "url.scheme": request.scheme,
        "server.address": host,
        "vinoqueue.request": exchange.id,
        "vinoqueue.outcome": outcome,
    }
    if port is not None:
        attributes["server.port"] = port
    if status:
        attributes["http.response.status_code"] = status
    name = _method(request, other="HTTP")
    if request.url_rule is not None:
        attributes["http.route"] = request.url_rule.rule
        name += f" {request.url_rule.rule}"
    exchange.span.set(attributes)
    failed = status >= 500 or (status < 400 and outcome in _PROBLEMS)
    exchange.span.end(time.monotonic(), name=name, error=outcome if failed else "")


def _method(request: Request, *, other: str) -> str:
    return request.method if request.method in _METHODS else other


def _address(host: str) -> tuple[str, int | None]:
    name, _, port = host.rpartition(":")
    if name and port.isdecimal() and len(port) <= 5:
        return name, int(port)
    return host, None


_NAME = "vinoqueue.connection"


class ConnectionExtension(TypedDict):
    """The connection of one request, as an extension of ASGI's scope. Other servers than ours do not have it, and the
    application works without it."""

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
