"""The Quart application: request hooks, routes and error handlers."""

import logging
import re
import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from typing import cast

from quart import Quart, Response, g, request
from quart.wrappers.base import BaseRequestWebsocket
from redis.exceptions import RedisError
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import MapAdapter

from api.access import METRICS_PATH, OPEN_PATHS, check_connection, check_host, check_key
from api.context import EXTENSION, Context, context
from api.dialects import dialect_of
from api.dialects.azure import Azure
from api.dialects.interface import Dialect
from api.request_cleanup import RequestCleanupMiddleware, request_cleanup
from api.request_log import RequestLog
from api.routes import azure, chat, models, operations, stored
from shared.protocol.errors import Problem, ProblemKind, RequestRefused

logger = logging.getLogger(__name__)

UNLOGGED = OPEN_PATHS | {METRICS_PATH}
"""Paths without log lines: probes and scrapes are too frequent."""

_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class _Application(Quart):
    """Quart with routing that ignores the Host header, which is not validated yet at that point."""

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        """Return an adapter that matches the path and method of ``request``."""
        if request is None:
            return super().create_url_adapter(None)
        return self.url_map.bind("localhost", path_info=request.path, default_method=request.method)


def create_app(parts: Context) -> Quart:
    """Construct the application for a replica's ``parts``."""
    app = _Application("vinoqueue", static_folder=None)
    app.extensions[EXTENSION] = parts
    app.config["MAX_CONTENT_LENGTH"] = parts.settings.max_body
    # Prevents redirects of paths such as '/v1//models', which would contain the Host header.
    app.url_map.merge_slashes = False
    app.asgi_app = RequestCleanupMiddleware(app.asgi_app)  # type: ignore[method-assign]
    for routes in (chat, stored, models, azure, operations):
        app.register_blueprint(routes.blueprint)
    app.before_request(_begin)
    app.before_request(check_host)
    app.before_request(check_connection)
    app.before_request(check_key)
    app.before_request(_know_models)
    app.after_request(_add_headers)
    app.register_error_handler(RequestRefused, _tell_refusal)
    app.register_error_handler(HTTPException, _tell_http_error)
    app.register_error_handler(Exception, _tell_failure)
    return app


async def _begin() -> None:
    g.began = time.monotonic()
    wanted = request.headers.get("x-request-id", "")
    g.request_id = wanted if _SANE_REQUEST_ID.fullmatch(wanted) else f"req_{uuid.uuid4().hex}"
    if request.path not in UNLOGGED:
        g.log = RequestLog(g.request_id, request)
        request_cleanup(request).callback(g.log.write)
    g.dialect = dialect_of(request.path, request.args, request.headers, _serving, _own_name)


async def _know_models() -> None:
    """Refresh the directory if no model is known, as after the start: Azure's requests may omit the model."""
    if isinstance(g.dialect, Azure) and not _serving():
        with suppress(RedisError, OSError):
            await context().directory.refresh()


def _serving() -> Collection[str]:
    return context().directory.fleet.serving()


def _own_name(name: str) -> str:
    return context().directory.fleet.own_name(name)


async def _add_headers(response: Response) -> Response:
    response.headers.update(g.get("extra_headers", {}))
    response.headers["x-request-id"] = g.request_id
    if "log" in g:
        g.log.status, g.log.key = response.status_code, g.get("key")
    response.headers["openai-processing-ms"] = str(round((time.monotonic() - g.began) * 1000))
    return response


async def _tell_refusal(refusal: RequestRefused) -> Response:
    return _error(refusal.problem)


async def _tell_http_error(error: HTTPException) -> Response:
    if isinstance(error, NotFound):
        return _error(
            Problem(kind=ProblemKind.ROUTE_NOT_FOUND, message=f"Invalid URL ({request.method} {request.path})")
        )
    if isinstance(error, MethodNotAllowed):
        response = _error(
            Problem(
                kind=ProblemKind.METHOD_NOT_ALLOWED,
                message=f"Not allowed to {request.method} on {request.path}. "
                f"(HINT: allowed are {', '.join(sorted(error.valid_methods or ()))})",
            )
        )
        response.headers["allow"] = ", ".join(sorted(error.valid_methods or ()))
        return response
    return _error(Problem(kind=ProblemKind.INVALID, message=error.description or error.name))


async def _tell_failure(error: Exception) -> Response:
    logger.exception("request %s failed", g.get("request_id", "?"), exc_info=error)
    return _error(
        Problem(
            kind=ProblemKind.INTERNAL,
            message="The server had an error while processing your request. Please try again, and report it with "
            f"the request id {g.get('request_id', '')} if it stays.",
        )
    )


def _error(problem: Problem) -> Response:
    context().metrics.refused(problem.kind)
    if "log" in g:
        g.log.problem = problem.kind
    reply = cast(Dialect, g.dialect).error(problem)
    response = Response(reply.body, status=reply.status, content_type="application/json")
    response.headers.update(reply.headers)
    return response
