"""HTTP exchanges, from a request to its log line: what hooks, routes and error handlers share, and the application.

A route that returns a streaming response ends before the stream starts, and a generator that was never entered runs no
``finally``. What a request holds is therefore released around the route and the sending of its response: when the
response is complete, when the client disconnects in any phase, and when the route fails.
"""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, cast

from quart import Quart, Request, request
from quart.asgi import ASGIHTTPConnection
from quart.wrappers.base import BaseRequestWebsocket
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.routing import MapAdapter, Rule

from api.dialects import unrouted
from api.dialects.base.interface import Dialect
from api.dialects.openai import OpenAI
from api.http.bodies import PacedBody
from api.http.routes import METRICS_PATHS, OPEN_PATHS, PAGE_FOLDER
from api.keys import ApiKey
from api.limits import Counts, LimitName
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import TraceContext
from shared.runtime.logs import Fields
from shared.runtime.tasks import cancel_all
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


UPLOAD_PATH = "/v1/files"
"""The route whose bodies may be larger than all others."""


_AZURE_OPENAI = re.compile(
    r"/openai(?:/v1(?=/)|/deployments/(?P<deployment>.+?)(?=/(?:(?:chat/)?completions|embeddings)$))?(?P<rest>/.+)"
)
_UNVERSIONED = re.compile(
    r"(?:/models(?=/chat/|/embeddings$))?"
    r"(?P<rest>/(?:chat/completions|completions|responses|embeddings|files|batches|models(?!/(?:info|load|unload)$))(?:/.*)?)"
)


def openai_path(path: str, *, versioned: bool = False) -> tuple[str, str | None]:
    """Return the path of OpenAI's API that another path means, and the deployment in it: the name of a model.

    ``AzureOpenAI`` clients send chats, completions and embeddings to ``/openai/deployments/DEPLOYMENT/…``, all else to
    ``/openai/…``, and those of Azure's API without versions to ``/openai/v1/…``. The parameter ``api-version`` has no
    effect there. Elsewhere it is what Azure's inference API requires: paths of OpenAI's API without ``/v1`` that are
    not ``versioned`` by it mean those with ``/v1``. Those below ``/v3/v1`` are the model server's. Other paths are
    returned as they are.
    """
    if (found := _AZURE_OPENAI.fullmatch(path)) is not None:
        return f"/v1{found['rest']}", found["deployment"]
    if not versioned and (found := _UNVERSIONED.fullmatch(path)) is not None:
        return f"/v1{found['rest']}", None
    return f"/v3{path[6:]}" if path.startswith("/v3/v1/") else path, None


class ExchangeApplication(Quart):
    """A Quart application with an :class:`HttpExchange` per request.

    Routing ignores the Host header, which is not validated yet at that point.
    """

    request_class = ExchangeRequest

    def __init__(self, tracing: Tracing, dialects: Mapping[str, type[Dialect]]) -> None:
        """``dialects`` are those of the routes, by endpoint."""
        super().__init__("vinoqueue", static_folder=None)
        self._tracing = tracing
        self._dialects = dialects

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        if request is None:
            return super().create_url_adapter(None)
        return self.url_map.bind("localhost", path_info=request.path, default_method=request.method)

    def begin(self, request: ExchangeRequest) -> HttpExchange:
        """Begin the exchange of ``request``: its id and span."""
        request_id, started_at = request_id_of(request), time.monotonic()
        span = begin_span(self._tracing, request, started_at)
        request.exchange = HttpExchange(
            id=request_id,
            started_at=started_at,
            span=span,
            method=request.method,
            path=request.sent_path,
        )
        return request.exchange

    def dialect_of(self, request: BaseRequestWebsocket) -> type[Dialect]:
        """Return the dialect of the route of ``request``, or else of its path."""
        rule: Rule | None = request.url_rule
        if isinstance(error := request.routing_exception, MethodNotAllowed) and error.valid_methods:
            adapter = self.url_map.bind("localhost")
            rule, _ = adapter.match(request.path, next(iter(error.valid_methods)), return_rule=True)
        return self._dialects.get(rule.endpoint, OpenAI) if rule is not None else unrouted(request.path)


class ExchangeHandler(ASGIHTTPConnection):
    async def __call__(self, receive: Any, send: Any) -> None:
        """Serve the request until its response is complete or its client disconnects.

        Quart cancels the route's task once when the client disconnects. In Python 3.11 that cancellation can get lost:
        ``asyncio.wait_for``, which redis-py calls for each command, swallows one that coincides with its own
        completion. ``cancel_all`` repeats it.
        """
        request = self._create_request_from_scope(send)
        receiving = asyncio.create_task(self.handle_messages(request, receive))
        handling = asyncio.create_task(self.handle_request(request, send))
        try:
            await asyncio.wait([receiving, handling], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all([receiving, handling])
        for task in (receiving, handling):
            if not task.cancelled() and (error := task.exception()):
                raise error

    async def handle_messages(self, request: Request, receive: Any) -> None:
        """Receive the body at the pace of the route, then wait for the client's disconnect."""
        while (message := await receive())["type"] != "http.disconnect":
            if message["type"] == "http.request":
                request.body.append(message.get("body", b""))
                if message.get("more_body", False):
                    await cast(PacedBody, request.body).room()
                else:
                    request.body.set_complete()

    async def handle_request(self, request: Request, send: Any) -> None:
        """Run the route and send its response; then release what the request holds, log it and end its span."""
        exchange = cast(ExchangeApplication, self.app).begin(cast(ExchangeRequest, request))
        try:
            await super().handle_request(request, send)
        finally:
            try:
                await exchange.close()
            finally:
                write_log(exchange)
                end_span(exchange, request)

    def _create_request_from_scope(self, send: Any) -> Request:
        request = cast(ExchangeRequest, super()._create_request_from_scope(send))
        request.sent_path = request.path
        request.path, request.deployment = openai_path(request.path, versioned="api-version" in request.args)
        if request.path == UPLOAD_PATH and request.method == "POST":
            request.body = PacedBody(None, None)  # Its route has limits of its own.
        return request


ExchangeApplication.asgi_http_class = ExchangeHandler
