"""Quart's handling of one HTTP request, inside an :class:`HttpExchange`.

A route that returns a streaming response ends before the stream starts, and a generator that was never entered runs no
``finally``. What a request holds is therefore released here, around the route and the sending of its response: when the
response is complete, when the client disconnects in any phase, and when the route fails.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any, cast

from quart import Quart, Request
from quart.asgi import ASGIHTTPConnection
from quart.wrappers.base import BaseRequestWebsocket
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.routing import MapAdapter, Rule

from api.dialects import unrouted
from api.dialects.base.interface import Dialect
from api.dialects.openai import OpenAI
from api.http.bodies import PacedBody
from api.http.exchange import ExchangeRequest, HttpExchange, begin_span, end_span, request_id_of, write_log
from shared.runtime.tasks import cancel_all
from shared.tracing import Tracing

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
