"""Routes: the methods of a feature's handler, which gets the services that it uses through its constructor."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from quart import Response

from api.dialects.base.interface import Dialect
from api.dialects.base.routes import JSON, Route
from api.dialects.openai import OpenAI

View = Callable[..., Awaitable[Response]]

_Method = TypeVar("_Method", bound=Callable[..., Awaitable[Response]])
_KSERVE = {"/v2/health/live", "/v2/health/ready"}
OPEN_PATHS = frozenset({"/live", "/ready", "/ready/replica", "/openapi.json", *_KSERVE})
"""Paths that need no key: probes of load balancers, and the OpenAPI document, which reveals nothing private."""

METRICS_PATH = "/metrics"

METRICS_PATHS = frozenset({METRICS_PATH, "/health"})
"""Paths that name models and hosts. They need a key unless ``open_metrics`` is set."""

PROBE_PATHS = frozenset({"/live", "/ready", "/ready/replica", "/health", *_KSERVE})
"""Paths served under any host name, and on connections over the limits."""

PAGE_FOLDER = "/web/"
"""The folder of the web page's files."""

ERRORS = Dialect.statuses
"""Statuses of errors of requests that workers serve."""

STORE_ERRORS = (400, 401, 404, 500, 503)
"""Statuses of errors of requests for something in the store."""

_MARK = "__routes__"


def route(
    method: str, path: str, operation: str, *, dialect: type[Dialect] = OpenAI, **description: Any
) -> Callable[[_Method], _Method]:
    """Mark a method of a handler: it serves ``method`` on ``path``. Repeat it for further paths.

    The arguments are fields of :class:`Route`. The summary is the first sentence of the method's docstring unless it is
    given.
    """
    return serving(Route(method, path, operation, dialect, **description))


def serving(*routes: Route) -> Callable[[_Method], _Method]:
    """Mark a method of a handler: it serves ``routes``, whose summary is as that of :func:`route`."""

    def mark(function: _Method) -> _Method:
        sentence = " ".join((function.__doc__ or "").split()).rstrip(".").partition(". ")[0] + "."
        own = (one._replace(summary=one.summary or sentence) for one in routes)
        setattr(function, _MARK, (*own, *getattr(function, _MARK, ())))
        return function

    return mark


def routes_of(handler: Any) -> Iterator[tuple[Route, View]]:
    """Yield the routes of ``handler``, an object or a class, each with the method that serves it."""
    for name, member in vars(handler if isinstance(handler, type) else type(handler)).items():
        for one in getattr(member, _MARK, ()):
            yield one, getattr(handler, name)


def json_response(body: bytes, status: int = 200) -> Response:
    return Response(body, status=status, content_type=JSON)
