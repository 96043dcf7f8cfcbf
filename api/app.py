"""The Quart application: request hooks, routes and error handlers."""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress

from quart import Quart, Response, request
from quart.wrappers.base import BaseRequestWebsocket
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import MapAdapter

from api.batches import routes as batches
from api.dialects.anthropic import Anthropic
from api.dialects.azure import Azure
from api.dialects.base.interface import Dialect
from api.dialects.ovms.responses import ModelServerResponses
from api.dialects.responses import Responses
from api.files import routes as files
from api.fleet import routes as fleet
from api.http.exchange import ExchangeRequest, current_exchange
from api.http.handler import ExchangeHandler
from api.http.json_response import json_response
from api.http.routes import routes_of
from api.limits import Counts, LimitName
from api.limits.headers import anthropic_rate_headers, openai_rate_headers
from api.models import azure_routes as azure
from api.models import routes as models
from api.operations import routes as operations
from api.page import routes as web
from api.replica import EXTENSION, Replica, current_replica
from shared.protocol.errors import Problem, ProblemKind, RequestRefused

logger = logging.getLogger(__name__)

SKIPPED_TOOLS_HEADER = "x-skipped-tools"


class _Application(Quart):
    """Quart with an :class:`HttpExchange` per request, and with routing that ignores the Host header, which is not
    validated yet at that point."""

    asgi_http_class = ExchangeHandler
    request_class = ExchangeRequest

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        """Return an adapter that matches the path and method of ``request``."""
        if request is None:
            return super().create_url_adapter(None)
        return self.url_map.bind("localhost", path_info=request.path, default_method=request.method)


def create_app(replica: Replica) -> Quart:
    """Construct the application of ``replica``."""
    app = _Application("vinoqueue", static_folder=None)
    app.extensions[EXTENSION] = replica
    app.config["MAX_CONTENT_LENGTH"] = replica.settings.max_request_body
    # Prevents redirects of paths such as '/v1//models', which would contain the Host header.
    app.url_map.merge_slashes = False
    for routes in (files, batches, models, azure, fleet, operations, web):
        app.register_blueprint(routes.blueprint)
    for handler in replica.handlers:
        for route, view in routes_of(handler):
            app.add_url_rule(route.path, view.__qualname__, view, methods=[route.method])
    app.before_request(replica.guards.check)
    app.before_request(_know_models)
    app.after_request(_add_headers)
    app.register_error_handler(RequestRefused, _on_refusal)
    app.register_error_handler(HTTPException, _on_http_error)
    app.register_error_handler(Exception, _on_failure)
    return app


async def _know_models() -> None:
    """Refresh the directory if no model is known: Azure's requests may omit the model."""
    if isinstance(current_exchange().dialect, Azure):
        with suppress(RequestRefused):
            await current_replica().models.refresh_if_empty()


async def _add_headers(response: Response) -> Response:
    exchange = current_exchange()
    exchange.status = response.status_code
    cross_origin = current_replica().cross_origin
    if cross_origin.enabled:
        response.vary.add("origin")
        response.headers.update(cross_origin.response_headers(request.headers))
    if exchange.details is not None:
        response.headers.update(_rate_headers(exchange.dialect, exchange.details.counts))
    response.headers["x-request-id"] = exchange.id
    if isinstance(exchange.dialect, Anthropic):
        response.headers["request-id"] = exchange.id
    if isinstance(exchange.dialect, Responses | ModelServerResponses) and exchange.dialect.skipped_tools:
        response.headers[SKIPPED_TOOLS_HEADER] = ", ".join(exchange.dialect.skipped_tools)
    response.headers["openai-processing-ms"] = str(round((time.monotonic() - exchange.started_at) * 1000))
    return response


def _rate_headers(dialect: Dialect, counts: Mapping[LimitName, Counts]) -> Mapping[str, str]:
    if isinstance(dialect, Anthropic):
        return anthropic_rate_headers(counts, time.time())
    return openai_rate_headers(counts)


async def _on_refusal(refusal: RequestRefused) -> Response:
    response = _error(refusal.problem)
    if refusal.problem.kind is ProblemKind.UNAUTHORIZED:
        response.headers["www-authenticate"] = "Bearer"
    return response


async def _on_http_error(error: HTTPException) -> Response:
    if isinstance(error, NotFound):
        return _error(
            Problem(
                kind=ProblemKind.ROUTE_NOT_FOUND, message=f"Invalid URL ({request.method} {current_exchange().path})"
            )
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
        if "upgrade" in request.headers:
            response.status_code = 426  # Codex then uses HTTP instead of a WebSocket.
        return response
    return _error(Problem(kind=ProblemKind.INVALID, message=error.description or error.name))


async def _on_failure(error: Exception) -> Response:
    exchange = current_exchange()
    logger.exception("request %s failed", exchange.id, exc_info=error)
    return _error(
        Problem(
            kind=ProblemKind.INTERNAL,
            message="The server had an error while processing your request. Please try again, and report it with "
            f"the request id {exchange.id} if it persists.",
        )
    )


def _error(problem: Problem) -> Response:
    exchange = current_exchange()
    exchange.problem = problem.kind
    current_replica().metrics.refused(problem.kind)
    reply = exchange.dialect.error(problem)
    response = json_response(reply.body, reply.status)
    response.headers.update(reply.headers)
    return response
