"""Routes: the methods of a feature's handler, which gets the services that it uses through its constructor."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from quart import Response

View = Callable[..., Awaitable[Response]]

_Method = TypeVar("_Method", bound=Callable[..., Awaitable[Response]])
OPEN_PATHS = frozenset({"/live", "/ready", "/health", "/openapi.json"})
"""Paths that need no key: probes of load balancers, and the OpenAPI document, which reveals nothing private."""

METRICS_PATH = "/metrics"

PROBE_PATHS = frozenset({"/live", "/ready", "/health"})
"""Paths served under any host name, and on connections over the limits."""

PAGE_FOLDER = "/web/"
"""The folder of the web page's files."""

_MARK = "__routes__"


class Route(NamedTuple):
    """A method of HTTP and a path in Werkzeug's syntax."""

    method: str
    path: str


def route(method: str, *paths: str) -> Callable[[_Method], _Method]:
    """Mark a method of a handler: it serves ``method`` on ``paths``."""

    def mark(function: _Method) -> _Method:
        setattr(function, _MARK, tuple(Route(method, path) for path in paths))
        return function

    return mark


def routes_of(handler: Any) -> Iterator[tuple[Route, View]]:
    """Yield the routes of ``handler``, an object or a class, each with the method that serves it."""
    for name in vars(handler if isinstance(handler, type) else type(handler)):
        view = getattr(handler, name)
        for one in getattr(view, _MARK, ()):
            yield one, view
