"""Keys and limits at the door of each exchange: what the application and the routes call of :mod:`api.admission`."""

from typing import cast

import msgspec
from quart import g, request

from api.admission import LimitReached, Ticket
from api.answers.tally import Tally
from api.context import context
from api.keys import ApiKey
from api.lifetime import lifetime
from api.relay import Answer
from shared.errors import ProblemKind, RequestRefused
from shared.registry import ModelInfo
from shared.request import ChatRequest

OPEN_PATHS = frozenset({"/live", "/ready", "/health", "/openapi.json"})
"""What needs no key: probes come from load balancers, and the API's description tells nothing of this installation."""

METRICS_PATH = "/metrics"


async def check_key() -> None:
    """Find the key of the current request before anything else of it is looked at.

    Raises :class:`shared.errors.RequestRefused`.
    """
    g.extra_headers = {}
    g.key = None
    parts = context()
    if request.path in OPEN_PATHS or (request.path == METRICS_PATH and parts.settings.open_metrics):
        return
    try:
        g.key = await parts.admission.identify(request.headers)
    except RequestRefused as refusal:
        if refusal.problem.kind is ProblemKind.UNAUTHORIZED:
            g.extra_headers = {"www-authenticate": "Bearer"}
        raise


def current_key() -> ApiKey | None:
    """The key of the current request; ``None`` where the service is open."""
    return cast("ApiKey | None", g.key)


def visible_models() -> dict[str, ModelInfo]:
    """The models that are served and that the current request's key may use, by name."""
    fleet = context().directory.fleet
    return {name: info for name, info in fleet.listed().items() if may_use(name)}


def may_use(name: str) -> bool:
    """Whether the current request's key allows the model that clients call ``name``: by that name, or by its own."""
    key = current_key()
    return key is None or key.may_use(name) or key.may_use(context().directory.fleet.own_name(name))


async def accept(chat: ChatRequest, tally: Tally) -> tuple[Ticket, Answer]:
    """Hold ``chat`` against its key's limits and queue it; the answer must be closed at its end.

    From here on the request has the model's own name, whatever the client called it. Limits and the queue
    count guesses of its tokens, which are put right by ``tally`` when the exchange is over. Raises
    :class:`shared.errors.RequestRefused`.
    """
    parts = context()
    asked, own = chat.model, await parts.service.own_name(chat.model)
    chat = msgspec.structs.replace(chat, model=own)
    try:
        ticket = await parts.admission.admit(
            current_key(), chat, request.headers, alias=asked if asked != own else None
        )
    except LimitReached as refusal:
        g.extra_headers = refusal.headers
        raise
    g.extra_headers = ticket.headers
    if ticket.reservation is not None:
        lifetime(request).callback(parts.admission.settle, ticket.reservation, tally)
    answer = await parts.service.submit(ticket.request, tenant=ticket.tenant, queue_timeout=ticket.queue_timeout)
    if ticket.tenant:
        lifetime(request).callback(parts.service.charge, ticket.request, ticket.tenant, tally)
    return ticket, answer
