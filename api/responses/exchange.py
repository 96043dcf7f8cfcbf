"""The chat exchange of a response: how a validated body becomes one."""

import msgspec

from api.chat import span as chat_span
from api.chat.exchange import ChatExchange
from api.chat.response_size import check_answer
from api.dialects.base.interface import Lookup
from api.dialects.responses import Draft, History
from api.dialects.responses.schema import ResponsesRequest
from api.http.bodies import check_body_size
from api.http.exchange import HttpExchange
from api.replica import Replica
from shared.protocol.request import ChatRequest


def is_stored(draft: Draft[ResponsesRequest], *, is_large: bool) -> bool:
    """Return whether a response is stored: by default, unless its request is large."""
    return not is_large if draft.store is None else draft.store


async def chat_exchange_of(
    replica: Replica,
    exchange: HttpExchange,
    headers: Lookup,
    draft: Draft[ResponsesRequest],
    history: History,
    *,
    size: int,
    store: bool,
) -> ChatExchange:
    """Return the chat exchange of the request in ``draft``, whose body has ``size`` bytes.

    Raises :class:`RequestRefused`.
    """
    key = exchange.key

    def translated() -> tuple[ChatRequest, bytes]:
        request = draft.request(history, store=store)
        return request, msgspec.json.encode(draft.input_items(history)) if store else b""

    request, items = await replica.body_parser.run(key.id if key is not None else "", size + history.size, translated)
    check_body_size(size, request, replica.settings.max_body)
    check_answer(request, replica.settings)
    span = exchange.span
    if request.background:
        span = chat_span.start_background(replica.tracing, span, exchange.started_at)
    return ChatExchange(
        replica,
        request,
        key=key,
        headers=headers,
        messages=items,
        started_at=exchange.started_at,
        span=span,
    )
