"""The Quart application: request hooks, routes and error handlers."""

import logging
import time
from contextlib import suppress
from typing import cast

import msgspec
from quart import Quart, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from api.build import Parts
from api.chat.usage import RequestMetrics
from api.dialects.base.interface import Asked
from api.http.application import ExchangeApplication
from api.http.bodies import CODINGS, UNKNOWN_CODING
from api.http.exchange import ExchangeRequest, current_exchange
from api.http.guards import CrossOrigin
from api.http.routes import json_response, routes_of
from api.models.directory import Directory
from shared.protocol.errors import Problem, ProblemKind, RequestRefused

logger = logging.getLogger(__name__)


def create_app(replica: Parts) -> Quart:
    routes = [found for handler in replica.handlers for found in routes_of(handler)]
    app = ExchangeApplication(replica.tracing, {route.operation: route.dialect for route, _ in routes})
    app.config["MAX_CONTENT_LENGTH"] = replica.settings.max_request_body
    # Prevents redirects of paths such as '/v1//models', which would contain the Host header.
    app.url_map.merge_slashes = False
    for route, view in routes:
        app.add_url_rule(route.path, route.operation, view, methods=[route.method])
    hooks = _Hooks(app, replica.directory, replica.cross_origin, replica.chat.metrics)
    app.before_request(hooks.choose_dialect)
    app.before_request(replica.guards.check)
    app.before_request(hooks.know_models)
    app.after_request(hooks.add_headers)
    app.register_error_handler(RequestRefused, hooks.on_refusal)
    app.register_error_handler(HTTPException, hooks.on_http_error)
    app.register_error_handler(Exception, hooks.on_failure)
    return app


class _Hooks:
    def __init__(
        self, app: ExchangeApplication, directory: Directory, cross_origin: CrossOrigin, metrics: RequestMetrics
    ) -> None:
        self._app = app
        self._directory = directory
        self._cross_origin = cross_origin
        self._metrics = metrics

    async def choose_dialect(self) -> None:
        sent, exchange = cast(ExchangeRequest, request), current_exchange()
        asked = Asked(
            path=request.path,
            headers=request.headers,
            query=request.args,
            id=exchange.id,
            at=exchange.started_at,
            deployment=sent.deployment,
            fleet=self._directory.fleet,
        )
        exchange.dialect = self._app.dialect_of(sent).of(asked)

    async def know_models(self) -> None:
        """Refresh the directory if no model is known and requests may omit theirs."""
        dialect = current_exchange().dialect
        if dialect.omits_model and not self._directory.fleet.serving():
            with suppress(RequestRefused):
                await self._directory.refresh_if_empty()
            dialect.asked = msgspec.structs.replace(dialect.asked, fleet=self._directory.fleet)

    async def add_headers(self, response: Response) -> Response:
        exchange = current_exchange()
        exchange.status = response.status_code
        if self._cross_origin.enabled:
            response.vary.add("origin")
            response.headers.update(self._cross_origin.response_headers(request.headers))
        if (details := exchange.details) is not None:
            if details.counts:
                response.headers.update(exchange.dialect.rate_headers(details.counts))
            response.headers.update(details.notes)
        response.headers["x-request-id"] = exchange.id
        response.headers.update(exchange.dialect.headers())
        response.headers["openai-processing-ms"] = str(round((time.monotonic() - exchange.started_at) * 1000))
        return response

    async def on_refusal(self, refusal: RequestRefused) -> Response:
        response = self._error(refusal.problem)
        if refusal.problem.kind is ProblemKind.UNAUTHORIZED:
            response.headers["www-authenticate"] = "Bearer"
        if refusal.problem.code == UNKNOWN_CODING:
            response.headers["accept-encoding"] = ", ".join(CODINGS)
        return response

    async def on_http_error(self, error: HTTPException) -> Response:
        """Respond to a request that no route serves, or that Quart cannot read."""
        if isinstance(error, NotFound):
            return self._error(
                Problem(
                    kind=ProblemKind.ROUTE_NOT_FOUND,
                    message=f"Invalid URL ({request.method} {current_exchange().path})",
                )
            )
        if isinstance(error, MethodNotAllowed):
            response = self._error(
                Problem(
                    kind=ProblemKind.METHOD_NOT_ALLOWED,
                    message=f"Not allowed to {request.method} on {request.path}. "
                    f"(HINT: allowed are {', '.join(sorted(error.valid_methods or ()))})",
                )
            )
            response.headers["allow"] = ", ".join(sorted(error.valid_methods or ()))
            if "websocket" in request.headers.get("upgrade", "").lower():
                response.status_code = 426  # Codex then uses HTTP instead of a WebSocket.
                response.headers.update({"upgrade": "HTTP/1.1", "connection": "upgrade"})
            return response
        return self._error(Problem(kind=ProblemKind.INVALID, message=error.description or error.name))

    async def on_failure(self, error: Exception) -> Response:
        """Log an error of the server, and respond with it."""
        exchange = current_exchange()
        logger.exception("request %s failed", exchange.id, exc_info=error)
        return self._error(
            Problem(
                kind=ProblemKind.INTERNAL,
                message="The server had an error while processing your request. Please try again, and report it with "
                f"the request id {exchange.id} if it persists.",
            )
        )

    def _error(self, problem: Problem) -> Response:
        exchange = current_exchange()
        exchange.problem = problem.kind
        self._metrics.refused(problem.kind)
        reply = exchange.dialect.error(problem)
        response = json_response(reply.body, reply.status)
        response.headers.update(reply.headers)
        return response
