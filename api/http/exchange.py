"""HTTP exchanges: what hooks, routes, error handlers and the request log share about one request and its response."""

import re
import uuid
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import cast

from quart import Request, request

from api.chat.exchange import ChatExchange
from api.dialects.base.interface import Dialect
from api.http.bodies import PacedBody
from api.keys import ApiKey
from shared.protocol.errors import ProblemKind
from shared.tracing import Span

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class HttpExchange:
    """One HTTP request and its response, and the owner of the resources that its route has entered."""

    # One instance per open stream.
    __slots__ = (
        "_resources",
        "chat",
        "dialect",
        "id",
        "key",
        "method",
        "path",
        "problem",
        "span",
        "started_at",
        "status",
    )

    def __init__(self, request: Request, dialect: Dialect, request_id: str, *, started_at: float, span: Span) -> None:
        """``started_at`` is the time of the request (monotonic seconds)."""
        self.id = request_id
        self.started_at = started_at
        self.span = span
        self.method = request.method
        self.path = cast(ExchangeRequest, request).sent_path
        self.dialect = dialect
        self._resources: list[AbstractAsyncContextManager[object]] = []
        self.key: ApiKey | None = None
        """The API key of the request; None if the service requires none."""
        self.chat: ChatExchange | None = None
        """The chat request, if it is one that could be parsed."""
        self.problem: ProblemKind | None = None
        """Why the response is an error, if it is."""
        self.status: int | None = None
        """HTTP status; None until the response has started."""

    async def enter(self, resource: AbstractAsyncContextManager[object]) -> None:
        """Enter ``resource``; it is left when the response is complete or the client has disconnected."""
        await resource.__aenter__()
        self._resources.append(resource)

    async def close(self) -> None:
        """Exit all resources in reverse order. Raises what they raise."""
        # Only now, because an exit stack for each open stream would take a kilobyte.
        async with AsyncExitStack() as stack:
            for resource in self._resources:
                stack.push_async_exit(resource)


class ExchangeRequest(Request):
    """A Quart request with its exchange."""

    body_class = PacedBody
    exchange: HttpExchange
    sent_path: str
    """The path that the client has sent. ``path`` is the one that serves it."""
    deployment: str | None
    """The model in an Azure OpenAI path."""


def request_id_of(request: Request) -> str:
    """Return the id that the client has given to its request, or a new one."""
    wanted = request.headers.get("x-request-id", "")
    return wanted if _SANE_ID.fullmatch(wanted) else f"req_{uuid.uuid4().hex}"


def current_exchange() -> HttpExchange:
    """Return the exchange of the current request."""
    return cast(ExchangeRequest, request).exchange
