"""JSON responses of routes."""

from quart import Response


def json_response(body: bytes, status: int = 200) -> Response:
    """Return a response with ``body``, which is JSON."""
    return Response(body, status=status, content_type="application/json")
