"""The route of the Responses API's WebSocket mode."""

import logging

from quart import Blueprint, Response, request
from werkzeug.exceptions import MethodNotAllowed

from api.access import is_foreign
from api.connection_extension import connection_extension
from api.http_exchange import current_exchange
from api.replica import current_replica
from api.responses.session import ResponseSession
from api.websocket.handshake import accept_upgrade, is_upgrade, too_early
from api.websocket.socket import CloseCode, SocketBounds, WebSocket
from shared.protocol.errors import ProblemKind, refuse

logger = logging.getLogger(__name__)

blueprint = Blueprint("sockets", __name__)


@blueprint.get("/v1/responses")
async def open_socket() -> Response:
    """Switch to a WebSocket and serve it until it is closed.

    The checks before all routes apply to the handshake. Browsers don't apply the same-origin policy to WebSockets, so
    the origin is checked here.
    """
    connection = connection_extension(request)
    if connection is None or "upgrade" not in connection or not is_upgrade(request):
        raise MethodNotAllowed(["POST"])
    if is_foreign():
        message = "Web pages of other sites can't open WebSockets."
        raise refuse(ProblemKind.FORBIDDEN, message, code="origin_not_allowed")
    replica, exchange = current_replica(), current_exchange()
    settings = replica.settings
    bounds = SocketBounds(
        max_message=settings.max_body, message_timeout=settings.body_timeout, client_timeout=settings.client_timeout
    )
    head = accept_upgrade(request, exchange.id)
    socket = connection["upgrade"](head, lambda link: WebSocket(link, bounds))
    if socket is None:
        raise too_early()
    exchange.status = 101
    socket.set_idle(idle=True)
    try:
        await ResponseSession(replica, request, socket).run()
    except Exception:
        logger.exception("WebSocket %s failed", exchange.id)
    finally:
        socket.close(CloseCode.INTERNAL)
    # Nothing more is sent on this connection.
    return Response(status=204)
