"""The end of an HTTP exchange."""

from quart import Request

from api.http import log as request_log
from api.http import span as http_span
from api.http.exchange import HttpExchange


async def end_exchange(exchange: HttpExchange, request: Request) -> None:
    """Release what ``exchange`` holds, log it and end its span. Raises what its resources raise."""
    try:
        await exchange.close()
    finally:
        request_log.write(exchange)
        http_span.end(exchange, request)
