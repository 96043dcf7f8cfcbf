"""Reading request bodies within limits."""

from quart import Request
from werkzeug.exceptions import RequestEntityTooLarge, RequestTimeout

from shared.errors import ProblemKind, refuse

DRAIN_FACTOR = 16
"""A body that is too large is still read (and dropped) up to this multiple of the limit, because many clients
only look for the answer when they have sent everything."""


async def read_json_body(request: Request, limit: int) -> bytes:
    """Return the body, at most ``limit`` bytes.

    Raises :class:`shared.errors.RequestRefused` when it is larger, comes too slowly, or is not declared as JSON.
    """
    if request.mimetype not in ("application/json", ""):
        raise refuse(
            ProblemKind.UNSUPPORTED_MEDIA,
            f"Unsupported content type '{request.mimetype[:100]}': send the body as 'Content-Type: application/json'.",
        )
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.body:
            size += len(part)
            if size <= limit:
                parts.append(part)
            else:
                parts.clear()
    except RequestEntityTooLarge:
        size = limit + 1
    except RequestTimeout as error:
        raise refuse(ProblemKind.TIMEOUT, "The request body came too slowly.") from error
    if size > limit:
        raise refuse(ProblemKind.TOO_LARGE, f"The request body is larger than the {limit} bytes that are allowed.")
    return b"".join(parts)
