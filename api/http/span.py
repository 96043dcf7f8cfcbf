"""The server span of an HTTP request, with the attributes of OpenTelemetry's semantic conventions for HTTP."""

import time

from quart import Request

from api.http.exchange import HttpExchange
from api.http.log import is_logged, outcome_of
from shared.protocol.errors import ProblemKind
from shared.protocol.request import TraceContext
from shared.tracing import NO_SPAN, Span, Tracing

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_PROBLEMS = frozenset(ProblemKind)


def begin(tracing: Tracing, request: Request, at: float) -> Span:
    """Begin the span of ``request`` at the time ``at``, in the client's trace if it has sent one."""
    if not tracing.enabled or not is_logged(request.path):
        return NO_SPAN
    # Several headers `traceparent` are invalid; those of `tracestate` are one list.
    parents = request.headers.getlist("traceparent")
    parent = None
    if len(parents) == 1:
        parent = TraceContext(parents[0], ",".join(request.headers.getlist("tracestate")))
    return tracing.start_span(_method(request, other="HTTP"), at, parent=parent, server=True)


def end(exchange: HttpExchange, request: Request) -> None:
    """End the span of ``exchange``.

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
    """Return the parts of a Host header."""
    name, _, port = host.rpartition(":")
    if name and port.isdecimal() and len(port) <= 5:
        return name, int(port)
    return host, None
