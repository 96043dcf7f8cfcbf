"""Routes: the methods of a feature's handler, which gets the services that it uses through its constructor."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel
from quart import Response

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

JSON = "application/json"
STREAMED = (JSON, "text/event-stream")
"""Content types of responses that may be streamed."""

ERRORS = (400, 401, 403, 404, 408, 413, 415, 429, 500, 503)
"""Statuses of errors of requests that workers serve."""

ANTHROPIC_ERRORS = (400, 401, 403, 404, 413, 415, 429, 500, 504, 529)
"""The same of Anthropic's API."""

STORE_ERRORS = (400, 401, 404, 500, 503)
"""Statuses of errors of requests for something in the store."""

_MARK = "__routes__"


class Route(NamedTuple):
    """A method of HTTP and a path in Werkzeug's syntax, and what the OpenAPI document says about them."""

    method: str
    path: str
    operation: str
    """``operationId``."""
    summary: str
    body: str = ""
    """Name of the schema of the JSON body, if there is one (see :data:`api.operations.openapi.BODIES`)."""
    form: type[BaseModel] | None = None
    """Validates the form of an upload, without the file."""
    query: type[BaseModel] | None = None
    """Validates the query."""
    returns: tuple[str, ...] = (JSON,)
    """Content types of a 200."""
    schema: str = ""
    """Name of the schema of a JSON response; any object without."""
    errors: tuple[int, ...] = ()
    """Statuses of errors, beyond those that every route may have."""


def route(method: str, path: str, operation: str, **description: Any) -> Callable[[_Method], _Method]:
    """Mark a method of a handler: it serves ``method`` on ``path``. Repeat it for further paths.

    ``operation`` and ``description`` are fields of :class:`Route`. The summary is the first sentence of the method's
    docstring unless it is given.
    """

    def mark(function: _Method) -> _Method:
        sentence = " ".join((function.__doc__ or "").split()).rstrip(".").partition(". ")[0] + "."
        own = Route(method, path, operation, **{"summary": sentence, **description})
        setattr(function, _MARK, (own, *getattr(function, _MARK, ())))
        return function

    return mark


def routes_of(handler: Any) -> Iterator[tuple[Route, View]]:
    """Yield the routes of ``handler``, an object or a class, each with the method that serves it."""
    for name, member in vars(handler if isinstance(handler, type) else type(handler)).items():
        for one in getattr(member, _MARK, ()):
            yield one, getattr(handler, name)


def json_response(body: bytes, status: int = 200) -> Response:
    return Response(body, status=status, content_type=JSON)
