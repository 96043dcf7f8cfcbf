"""The beginning and the end of HTTP exchanges."""

import time
from collections.abc import Callable, Collection

from api.dialects import dialect_of
from api.http import log as request_log
from api.http import span as http_span
from api.http.exchange import ExchangeRequest, HttpExchange, request_id_of
from shared.tracing import Tracing


class Exchanges:
    """Begins and ends HTTP exchanges."""

    def __init__(
        self, tracing: Tracing, serving: Callable[[], Collection[str]], own_name: Callable[[str], str]
    ) -> None:
        """``serving`` returns the names of the models that workers serve now. ``own_name`` resolves an alias."""
        self._tracing = tracing
        self._serving = serving
        self._own_name = own_name

    def begin(self, request: ExchangeRequest) -> HttpExchange:
        """Begin the exchange of ``request``: its id, dialect and span."""
        request_id, started_at = request_id_of(request), time.monotonic()
        dialect = dialect_of(
            request.path,
            request.args,
            request.headers,
            self._serving,
            self._own_name,
            request_id,
            request.deployment,
        )
        span = http_span.begin(self._tracing, request, started_at)
        request.exchange = HttpExchange(request, dialect, request_id, started_at=started_at, span=span)
        return request.exchange

    async def end(self, exchange: HttpExchange, request: ExchangeRequest) -> None:
        """Release what ``exchange`` holds, log it and end its span. Raises what its resources raise."""
        try:
            await exchange.close()
        finally:
            request_log.write(exchange)
            http_span.end(exchange, request)
