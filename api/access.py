"""Access checks of HTTP requests: Host header, connection limits, API key, model access and admission."""

from typing import cast

import msgspec
from quart import g, request

from api.admission import LimitReached, Ticket
from api.answers.usage_recorder import UsageRecorder
from api.connection_extension import connection_extension
from api.context import context
from api.hosts import is_well_formed
from api.keys import ApiKey
from api.request_cleanup import request_cleanup
from api.response_stream import ResponseStream
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.registry import ModelInfo
from shared.protocol.request import ChatRequest

OPEN_PATHS = frozenset({"/live", "/ready", "/health", "/openapi.json"})
"""Paths that need no key: probes of load balancers, and the OpenAPI document, which reveals nothing private."""

METRICS_PATH = "/metrics"

PROBE_PATHS = frozenset({"/live", "/ready", "/health"})
"""Paths served under any host name, and on surplus connections."""


async def check_host() -> None:
    """Check the Host header. Raises :class:`RequestRefused`."""
    hosts = request.headers.getlist("host")
    if request.http_version == "1.0" and (not hosts or hosts == [""]):
        return  # Optional in HTTP/1.0; browsers always send it.
    if len(hosts) != 1 or not is_well_formed(hosts[0]):
        raise refuse(ProblemKind.INVALID, "A request needs exactly one valid Host header.")
    if request.path not in PROBE_PATHS and not context().hosts.allow(hosts[0]):
        raise refuse(
            ProblemKind.WRONG_HOST,
            f"This API is not served under the host name '{hosts[0][:100]}'. "
            "Its operator can add the name to --allowed-hosts (VINOQUEUE_ALLOWED_HOSTS).",
        )


async def check_connection() -> None:
    """Refuse everything but probes and metrics on surplus connections. Raises :class:`RequestRefused`."""
    connection = connection_extension(request)
    if connection is not None and connection["surplus"] and request.path not in (*PROBE_PATHS, METRICS_PATH):
        raise refuse(
            ProblemKind.TOO_MANY_CONNECTIONS, "There are too many open connections. Please try again.", retry_after=1.0
        )


async def check_key() -> None:
    """Identify the API key of the current request before anything else is processed.

    Raises :class:`RequestRefused`.
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
    """Return the API key of the current request; ``None`` if the service requires none."""
    return cast("ApiKey | None", g.key)


def visible_models() -> dict[str, ModelInfo]:
    """Return the served models that the current request's key may use, by name."""
    fleet = context().directory.fleet
    return {name: info for name, info in fleet.listed().items() if may_use(name)}


def may_use(name: str) -> bool:
    """Return whether the current request's key allows the model ``name``, by this name or by the model's own."""
    key = current_key()
    return key is None or key.may_use(name) or key.may_use(context().directory.fleet.own_name(name))


async def accept(chat: ChatRequest, tally: UsageRecorder) -> tuple[Ticket, ResponseStream]:
    """Admit ``chat`` and submit it; the returned stream must be closed.

    The ticket's request has the model's own name instead of an alias. Limits and fair queueing count estimated tokens,
    which are corrected by the usage in ``tally`` when the exchange ends. Raises :class:`RequestRefused`.
    """
    parts = context()
    asked, own = chat.model, await parts.models.own_name(chat.model)
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
        request_cleanup(request).callback(parts.admission.settle, ticket.reservation, ticket.request, tally)
    answer = await parts.submission.submit(
        ticket.request, tally, tenant=ticket.tenant, queue_timeout=ticket.queue_timeout
    )
    if ticket.tenant:
        request_cleanup(request).callback(parts.charges.charge, ticket.request, ticket.tenant, tally)
    return ticket, answer
