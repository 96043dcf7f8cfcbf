"""Reading request bodies within limits."""

import asyncio
from typing import cast

from quart import Request
from quart.wrappers.request import Body
from werkzeug.exceptions import RequestEntityTooLarge

from shared.protocol.errors import ProblemKind, refuse
from shared.runtime.settings import ApiSettings


class _ReadBody:
    """Stands for a body that has been read: Quart's own, with its two events, would take 1.7 kB as long as a stream."""

    def append(self, data: bytes) -> None:
        """Take no more: the server tells only that the client has gone."""

    def set_complete(self) -> None:
        """Be told the end once more."""


_READ = cast(Body, _ReadBody())


async def read_json_body(request: Request, settings: ApiSettings) -> bytes:
    """Return the body, at most ``max_body`` bytes that come within ``body_timeout`` seconds.

    Raises :class:`RequestRefused` when it is larger, comes too slowly, is compressed, or is not
    declared as JSON. Browsers send any other type, or none, to other sites without asking them first, so a web page
    could use the API of whoever visits it.
    """
    if request.mimetype != "application/json":
        named = f"Unsupported content type '{request.mimetype[:100]}'" if request.mimetype else "No content type"
        raise refuse(ProblemKind.UNSUPPORTED_MEDIA, f"{named}: send the body as 'Content-Type: application/json'.")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise refuse(
            ProblemKind.UNSUPPORTED_MEDIA,
            f"Unsupported content encoding '{encoding[:100]}': send the body as it is, without compression.",
        )
    limit = settings.max_body
    parts: list[bytes] = []
    size = 0
    try:
        # Quart's own time limit does not cover reading a body piece by piece.
        async with asyncio.timeout(settings.body_timeout):
            async for part in request.body:
                size += len(part)
                if size > limit:
                    raise RequestEntityTooLarge
                parts.append(part)
    except RequestEntityTooLarge as error:
        message = f"The request body is larger than the {limit} bytes that are allowed."
        raise refuse(ProblemKind.TOO_LARGE, message) from error
    except TimeoutError as error:
        raise refuse(ProblemKind.TIMEOUT, "The request body came too slowly.") from error
    request.body = _READ
    return b"".join(parts)
