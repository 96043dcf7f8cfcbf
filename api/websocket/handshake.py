"""The WebSocket handshake (RFC 6455, 4.2): checks of the request, and the head of the response."""

import base64
import binascii

from quart import Request
from wsproto.utilities import generate_accept_token

from shared.protocol.errors import ProblemKind, RequestRefused, refuse

_VERSION = "13"
_KEY_SIZE = 16


def is_upgrade(request: Request) -> bool:
    """Return whether ``request`` asks for a WebSocket."""
    return _words(request, "upgrade") == ["websocket"] and "upgrade" in _words(request, "connection")


def accept_upgrade(request: Request, request_id: str) -> bytes:
    """Return the head of the response that accepts the upgrade. No extension and no subprotocol is selected.

    Raises :class:`RequestRefused` for a broken rule of the protocol.
    """
    headers = request.headers
    if headers.getlist("sec-websocket-version") != [_VERSION]:
        raise _broken(f"the header 'Sec-WebSocket-Version' must be {_VERSION}")
    keys = headers.getlist("sec-websocket-key")
    if len(keys) != 1 or not _is_key(keys[0]):
        raise _broken(f"the header 'Sec-WebSocket-Key' must be {_KEY_SIZE} bytes in base64")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise _broken("the request has a body")
    lines = (
        b"HTTP/1.1 101 Switching Protocols",
        b"upgrade: websocket",
        b"connection: Upgrade",
        b"sec-websocket-accept: " + generate_accept_token(keys[0].encode()),
        b"x-request-id: " + request_id.encode(),
    )
    return b"\r\n".join((*lines, b"\r\n"))


def too_early() -> RequestRefused:
    """Return the refusal of a handshake after which data has been sent without waiting for the response."""
    return _broken("data was sent before its end")


def _words(request: Request, name: str) -> list[str]:
    return [word.strip().lower() for value in request.headers.getlist(name) for word in value.split(",")]


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == _KEY_SIZE
    except (binascii.Error, ValueError):
        return False


def _broken(fault: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"Invalid WebSocket handshake: {fault}.")
